"""What a user may hand over, and what is refused with how to mend it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import DataLoader, SubsetRandomSampler, TensorDataset

import smoothheads as sh
from smoothheads.data import as_dataset, as_pixels, from_arrays
from smoothheads.errors import DataError

from .builders import numbered, pictures, png

IMAGES, LABELS = pictures(6, (3, 8, 5)), numbered(6, 3)
WANTED = from_arrays(IMAGES, LABELS)
FLOATS = IMAGES.astype(np.float32) / np.float32(255)


class Pairs:
    """A torch data set in all but name."""

    def __init__(self, images: Any, labels: Any) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, position: int) -> tuple[Any, int]:
        return self.images[position], self.labels[position]


class HubRows:
    """A datasets.Dataset in all but name: rows are dicts with pictures, features know the class names."""

    def __init__(self, image: str, label: str) -> None:
        self.column_names = ["extra", image, label]
        self.features = {label: SimpleNamespace(names=["cat", "dog", "eel"])}
        self.rows = [
            {"extra": 0, image: Image.fromarray(x.transpose(1, 2, 0)), label: int(y)}
            for x, y in zip(IMAGES, LABELS, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, position: int) -> dict[str, Any]:
        return self.rows[position]


def tensors() -> TensorDataset:
    return TensorDataset(torch.from_numpy(FLOATS), torch.from_numpy(LABELS))


@pytest.mark.parametrize(
    "given",
    [
        WANTED,
        (IMAGES, LABELS),
        (FLOATS, LABELS.astype(np.float64)),
        (FLOATS.transpose(0, 2, 3, 1), LABELS[:, None]),
        {"images": torch.from_numpy(IMAGES), "labels": torch.from_numpy(LABELS)},
        Pairs(IMAGES, LABELS),
        Pairs([Image.fromarray(x.transpose(1, 2, 0)) for x in IMAGES], LABELS),
        tensors(),
        DataLoader(tensors(), batch_size=4, shuffle=True),
        ([Image.fromarray(x.transpose(1, 2, 0)) for x in IMAGES], LABELS.tolist()),
    ],
)
def test_the_same_images_come_out(given: Any) -> None:
    assert as_dataset(given).fingerprint == WANTED.fingerprint


def test_images_and_labels_as_two_arguments() -> None:
    assert sh.dataset(FLOATS, LABELS, name="mine").info.name == "mine"


def test_loader_with_a_sampler_of_its_own_is_refused() -> None:
    loader = DataLoader(tensors(), batch_size=2, sampler=SubsetRandomSampler([4, 1, 3]))
    with pytest.raises(DataError, match="SubsetRandomSampler does not yield every image once"):
        as_dataset(loader, classes=3)


@pytest.mark.parametrize(("image", "label"), [("image", "label"), ("img", "fine_label"), ("photo", "kind")])
def test_columns_of_the_hub(image: str, label: str) -> None:
    named = {} if image != "photo" else {"image_column": "photo", "label_column": "kind"}
    dataset = as_dataset(HubRows(image, label), **named)
    assert np.array_equal(dataset.image(3), IMAGES[3])
    assert dataset.labels.tolist() == LABELS.tolist()
    assert dataset.info.class_names == ("cat", "dog", "eel")


class Random(Pairs):
    def __getitem__(self, position: int) -> tuple[Any, int]:
        return np.random.default_rng().integers(0, 256, (8, 5), dtype=np.uint8), 0


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            HubRows("photo", "kind"),
            r"label column is not .* \(columns: extra, photo, kind\); name it: label_column",
        ),
        (Random(IMAGES, LABELS), "remove the random transforms"),
        (Pairs([IMAGES[0], IMAGES[1, :, :4]], [0, 1]), "not of one size"),
        (Pairs([], []), "needs images and labels"),
        (3, "int is not a data set"),
        ([1, 2, 3], r"pairs \(image, label\), not int"),
        ((FLOATS * 0.9, LABELS), "quantise the images: np.rint"),
        ((FLOATS - 0.5, LABELS), "undo a normalisation"),
    ],
)
def test_what_cannot_be_taken_is_refused(given: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_dataset(given)


@pytest.mark.parametrize(
    "image",
    [
        IMAGES[0],
        IMAGES[0].transpose(1, 2, 0),
        FLOATS[0],
        FLOATS[0].astype(np.float64),
        torch.from_numpy(IMAGES[0]),
        torch.from_numpy(FLOATS[0]).requires_grad_(),
        IMAGES[0].tolist(),
        Image.fromarray(IMAGES[0].transpose(1, 2, 0)),
    ],
)
def test_one_image_in_every_form(image: Any) -> None:
    assert np.array_equal(as_pixels(image, WANTED.info), IMAGES[0])


def test_batches_and_files(tmp_path: Path) -> None:
    assert np.array_equal(as_pixels(FLOATS.transpose(0, 2, 3, 1), WANTED.info), IMAGES)
    (tmp_path / "a.png").write_bytes(png(IMAGES[2]))
    assert np.array_equal(as_pixels(str(tmp_path / "a.png"), WANTED.info), IMAGES[2])


def test_grey_images_need_no_channel() -> None:
    grey = pictures(4, (8, 5))
    info = from_arrays(grey, [0, 1, 0, 1]).info
    assert as_pixels(grey[0], info).shape == (1, 8, 5)
    assert as_pixels(grey, info).shape == (4, 1, 8, 5)
    assert as_pixels(Image.fromarray(grey[0]), info).shape == (1, 8, 5)


def test_floats_in_whole_numbers_are_grid_values() -> None:
    digits = pictures(4, (8, 8), q=16).astype(np.float64)
    assert np.array_equal(from_arrays(digits, [0, 1, 0, 1], max_value=16).images[:, 0], digits)


@pytest.mark.parametrize(
    ("image", "message"),
    [
        (IMAGES[0, :, :4], r"3x8x5 .* of shape \(3, 4, 5\); resize"),
        (IMAGES[0, 0], r"of shape \(8, 5\); the channels differ, so convert it to RGB"),
        (np.full((3, 8, 5), np.nan), "NaN or infinite"),
        (np.full((3, 8, 5), 300), r"values in 300\.\.300 instead of integers in 0\.\.255"),
        ([[1, 2], [3]], "not of one size"),
        ("nowhere.png", "no image file nowhere.png"),
        ({"image": 3}, "takes one image or a batch"),
        (IMAGES[:2, 0], r"shape \(2, 8, 5\); the channels differ"),
    ],
)
def test_pixels_that_do_not_fit_are_refused(image: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        as_pixels(image, WANTED.info)
