from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothheads.data import load, load_test, named
from smoothheads.errors import DataError

from .builders import npz, npz_file, numbered, pictures


def save(path: Path, **changes: Any) -> Path:
    content: dict[str, Any] = {
        "train_images": pictures(6, (8, 8)),
        "train_labels": numbered(6, 3),
        "test_images": pictures(3, (8, 8), seed=1),
        "test_labels": numbered(3, 3),
    }
    kept = {key: value for key, value in (content | changes).items() if value is not None}
    np.savez(path, **kept)
    return path


def test_names_and_grid_are_read(tmp_path: Path) -> None:
    test = load_test(npz_file(tmp_path))
    assert test.info.name == "own"
    assert test.info.class_names == ("a", "b", "c")
    assert test.info.grid.max_value == 100


def test_the_training_images_set_classes_and_statistics(tmp_path: Path) -> None:
    splits = load(named("npz", root=str(save(tmp_path / "own.npz"))))
    assert splits.test.info == splits.train.info
    np.testing.assert_allclose(splits.test.info.mean[0], pictures(6, (8, 8)).mean() / 255)


def test_a_file_without_training_images_can_be_certified(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz", train_images=None, train_labels=None)
    test = npz(path, "test")
    assert (test.info.mean, test.info.std) == ((0.0,), (1.0,))
    with pytest.raises(DataError, match="has no train_images"):
        npz(path, "train")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_labels": None}, "has no test_labels"),
        ({"test_labels": np.array([0, 1, 3])}, r"outside 0\.\.2"),
        ({"test_images": pictures(3, (8, 9))}, "shape"),
        ({"test_images": np.full((3, 8, 8), 0.3, np.float32)}, "off the grid"),
        ({"class_names": np.arange(3)}, "class_names"),
        ({"max_value": 0.5}, "must be one integer"),
        ({"test_images": np.array([object()] * 3)}, "plain arrays"),
    ],
)
def test_wrong_content_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        npz(save(tmp_path / "own.npz", **changes), "test")


def test_wrong_path(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file"):
        npz(tmp_path / "absent.npz", "test")
    with pytest.raises(DataError, match="needs to know where"):
        npz(None, "test")


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    path = save(tmp_path / "own.npz")
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(DataError, match=r"not a complete \.npz file"):
        npz(path, "test")


def test_a_single_array_is_no_data_set(tmp_path: Path) -> None:
    np.save(tmp_path / "own.npy", pictures(2, (8, 8)))
    with pytest.raises(DataError, match=r"not a complete \.npz file"):
        npz(tmp_path / "own.npy", "test")


def test_flipped_bytes_are_refused(tmp_path: Path) -> None:
    path = save(tmp_path / "own.npz")
    data = bytearray(path.read_bytes())
    middle = data.find(b"test_images.npy") + 200
    data[middle] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"not a complete \.npz file"):
        npz(path, "test")


def test_the_names_and_labels_that_others_write(tmp_path: Path) -> None:
    """x_train and y_train as Keras has them, labels in a column as MedMNIST has them."""
    train, test = pictures(9, (8, 8)), pictures(4, (8, 8), seed=1)
    np.savez(
        tmp_path / "x.npz",
        x_train=train,
        y_train=numbered(9, 3)[:, None],
        x_test=test,
        y_test=np.array([[1], [2], [1], [2]]),
    )
    split = npz(tmp_path / "x.npz", "test")
    assert np.array_equal(split.images[:, 0], test)
    assert (split.labels.tolist(), split.info.classes) == ([1, 2, 1, 2], 3)


def test_labels_from_one_are_noticed(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", train_images=pictures(9, (8, 8)), train_labels=numbered(9, 3) + 1)
    with pytest.raises(DataError, match=r"labels are 1\.\.3.*subtract 1"):
        npz(tmp_path / "x.npz", "train")
