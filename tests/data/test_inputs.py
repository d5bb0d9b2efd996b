"""Pictures that `predict` takes: an array in .npz is treated as a PNG of the same pixels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from smoothheads.data import DataInfo, named
from smoothheads.data.inputs import Frame, find_inputs
from smoothheads.errors import DataError
from smoothheads.types import Grid

from .builders import pictures, png

INFO = DataInfo("mine", Grid(255), (3, 8, 8), ("a", "b"), (0.5,) * 3, (0.2,) * 3)
GREY = DataInfo("digits", Grid(16), (1, 8, 8), ("a", "b"), (0.5,), (0.2,))


def read_all(path: Path, frame: Frame) -> list[NDArray[np.uint8]]:
    return [each.read() for each in find_inputs([str(path)], frame)]


def saved(folder: Path, images: NDArray[np.generic]) -> Path:
    np.savez(folder / "x.npz", images=images)
    return folder / "x.npz"


@pytest.mark.parametrize("layout", ["first", "last"])
@pytest.mark.parametrize("size", [(8, 8), (12, 20), (20, 12)])
def test_npz_is_resized_as_png(tmp_path: Path, size: tuple[int, int], layout: str) -> None:
    images = pictures(2, (3, *size))
    frame = Frame(INFO, resize=True)
    stored = images if layout == "first" else images.transpose(0, 2, 3, 1)
    arrays = read_all(saved(tmp_path, stored), frame)
    for number, image in enumerate(images):
        (tmp_path / "x.png").write_bytes(png(image))
        assert np.array_equal(arrays[number], read_all(tmp_path / "x.png", frame)[0])
        assert arrays[number].shape == INFO.shape


def test_npz_is_cropped_as_in_training(tmp_path: Path) -> None:
    frame = Frame(INFO, named("folder", size=8, root="x"))
    images = pictures(2, (30, 40, 3))
    arrays = read_all(saved(tmp_path, images), frame)
    assert np.array_equal(arrays[1], frame.fit(Image.fromarray(images[1]), "x"))


def test_npz_of_8_bit_pictures_for_a_coarser_grid(tmp_path: Path) -> None:
    images = pictures(2, (8, 8))
    arrays = read_all(saved(tmp_path, images), Frame(GREY))
    assert arrays[0].max() <= 16
    Image.fromarray(images[0]).save(tmp_path / "x.png")
    assert np.array_equal(arrays[0], read_all(tmp_path / "x.png", Frame(GREY))[0])


def test_npz_of_grid_values_stays_as_it_is(tmp_path: Path) -> None:
    images = pictures(2, (8, 8), q=16)
    assert np.array_equal(read_all(saved(tmp_path, images), Frame(GREY))[1][0], images[1])


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (pictures(9, (3, 12, 20)), r"x\.npz has 20x12 pixels, and the network takes 8x8; .* add --resize"),
        (pictures(9, (3, 12, 20)) / 255, r"of shape \(3, 12, 20\); resize or crop it"),
        (pictures(9, (8, 8)) / 255, r"of shape \(8, 8\); the channels differ, so convert it to RGB"),
        (pictures(9, (4, 8, 8)), r"of shape \(4, 8, 8\); the channels differ"),
    ],
)
def test_wrong_shape_is_one_message_for_all(
    tmp_path: Path, images: NDArray[np.generic], message: str
) -> None:
    (only,) = find_inputs([str(saved(tmp_path, images))], Frame(INFO))
    with pytest.raises(DataError, match=message):
        only.read()


def test_wrong_values_are_named_image_by_image(tmp_path: Path) -> None:
    images = np.zeros((3, 3, 8, 8))
    images[1, 0, 0, 0] = np.nan
    good, bad, other = find_inputs([str(saved(tmp_path, images))], Frame(INFO))
    assert good.read().shape == other.read().shape == INFO.shape
    with pytest.raises(DataError, match="NaN"):
        bad.read()


def test_npz_without_images_names_what_it_has(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", other=np.zeros(3))
    with pytest.raises(DataError, match=r"no images under images, .* \(it holds other\)"):
        list(find_inputs([str(tmp_path / "x.npz")], Frame(INFO)))
