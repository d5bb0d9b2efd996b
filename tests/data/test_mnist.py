from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from smoothheads.data.mnist import read_idx
from smoothheads.errors import DataError

from .builders import fashion_mnist, idx, mnist, mnist_files, numbered, pictures, write_files

IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


@pytest.mark.parametrize("packed", [False, True])
def test_contents(tmp_path: Path, packed: bool) -> None:
    mnist_files(tmp_path, packed=packed)
    for dataset in (mnist(tmp_path, "test"), fashion_mnist(tmp_path, "test")):
        assert np.array_equal(dataset.images[:, 0], pictures(5, (28, 28), seed=5))
        assert np.array_equal(dataset.labels, numbered(5))
    assert len(mnist(tmp_path, "train")) == 12


def test_the_dotted_names_are_known(tmp_path: Path) -> None:
    mnist_files(tmp_path)
    for path in list(tmp_path.iterdir()):
        path.rename(path.with_name(path.name.replace("-idx", ".idx")))
    assert len(mnist(tmp_path, "test")) == 5


def test_two_sets_below_one_root_are_not_guessed_between(tmp_path: Path) -> None:
    mnist_files(tmp_path / "mnist")
    mnist_files(tmp_path / "fashion")
    with pytest.raises(DataError, match="got fashion, mnist"):
        mnist(tmp_path, "test")


@pytest.mark.parametrize("name", [IMAGES, LABELS])
def test_a_missing_file_is_named(tmp_path: Path, name: str) -> None:
    mnist_files(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(DataError, match=name):
        mnist(tmp_path, "test")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the magic number nothing"),
        (idx(pictures(2, (28, 28)))[:10], "the magic number"),
        (idx(numbered(2).astype(np.uint8)), "the magic number 00000801"),
        (b"\x00\x00\x0d\x03" + bytes(12), "the magic number 00000d03"),
        (idx(pictures(2, (28, 28)))[:-1], r"1583 bytes instead of 1584 for the shape \(2, 28, 28\)"),
        (idx(pictures(2, (28, 28))) + b"x", "1585 bytes instead of 1584"),
    ],
)
def test_damaged_idx_files_are_refused(tmp_path: Path, data: bytes, message: str) -> None:
    plain, packed = tmp_path / "a", tmp_path / "a.gz"
    plain.write_bytes(data)
    packed.write_bytes(gzip.compress(data))
    for path in (plain, packed):
        with pytest.raises(DataError, match=message):
            read_idx(path, 3)


@pytest.mark.parametrize("share", [0.02, 0.5, 0.99])
def test_a_truncated_gz_is_refused(tmp_path: Path, share: float) -> None:
    data = gzip.compress(idx(pictures(3, (28, 28))))
    path = tmp_path / "a.gz"
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(DataError, match="whole idx file"):
        read_idx(path, 3)


def test_a_file_that_was_unpacked_under_its_old_name_is_read(tmp_path: Path) -> None:
    """As browsers do it."""
    path = tmp_path / "a.gz"
    path.write_bytes(idx(pictures(3, (28, 28))))
    assert np.array_equal(read_idx(path, 3), pictures(3, (28, 28)))


def test_wrong_sizes_labels_and_counts(tmp_path: Path) -> None:
    good = {IMAGES: idx(pictures(2, (28, 28))), LABELS: idx(np.array([1, 2], np.uint8))}
    wrong = {
        "size": {IMAGES: idx(pictures(2, (28, 27)))},
        "label": {LABELS: idx(np.array([1, 10], np.uint8))},
        "count": {LABELS: idx(np.array([1, 2, 3], np.uint8))},
    }
    messages = {"size": r"shape \(1, 28, 28\)", "label": "got 10 at position 1", "count": "2 labels"}
    for name, change in wrong.items():
        write_files(tmp_path / name, good | change)
        with pytest.raises(DataError, match=messages[name]):
            mnist(tmp_path / name, "test")
