from __future__ import annotations

import gzip
import shutil
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from smoothheads.data import SubsetConfig, load, load_test, select
from smoothheads.data.arrays import statistics
from smoothheads.data.published import Cifar10, Cifar100, read_idx
from smoothheads.errors import DataError

from . import builders
from .builders import (
    cifar10,
    cifar100,
    cifar_content,
    digits,
    fashion_mnist,
    idx,
    mnist,
    mnist_files,
    numbered,
    pictures,
    png,
    python_batch,
    write_files,
    write_parquet,
)

KINDS = ("parquet", "python", "python_archive")


@pytest.mark.parametrize("kind", KINDS)
def test_cifar10_is_the_same_from_every_source(tmp_path: Path, kind: str) -> None:
    root = builders.BUILDERS[f"cifar10_{kind}"](tmp_path).root
    for split in ("train", "test"):
        dataset = cifar10(root, split)
        images, labels = cifar_content(split)
        assert np.array_equal(dataset.images, images)
        assert np.array_equal(dataset.labels, labels)


@pytest.mark.parametrize("kind", KINDS)
def test_cifar100_is_the_same_from_every_source(tmp_path: Path, kind: str) -> None:
    root = builders.BUILDERS[f"cifar100_{kind}"](tmp_path).root
    for split in ("train", "test"):
        dataset = cifar100(root, split)
        images, labels = cifar_content(split, 100)
        assert np.array_equal(dataset.images, images)
        assert np.array_equal(dataset.labels, labels)


def test_class_names() -> None:
    assert Cifar10.known.class_names[3] == "cat"
    assert Cifar100.known.classes == 100
    assert list(Cifar100.known.class_names) == sorted(Cifar100.known.class_names)


@pytest.mark.parametrize("kind", ["parquet", "python"])
def test_certification_needs_no_training_files(tmp_path: Path, kind: str) -> None:
    config = builders.BUILDERS[f"cifar10_{kind}"](tmp_path)
    for path in [*tmp_path.rglob("train-*"), *tmp_path.rglob("data_batch*")]:
        path.unlink()
    assert len(load_test(config)) == builders.CIFAR_TEST
    with pytest.raises(DataError, match=r"cifar10 \(train\)"):
        load(config)


def test_what_is_unpacked_comes_before_its_archive(tmp_path: Path) -> None:
    builders.cifar10_python(tmp_path)
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(b"not read")
    assert len(cifar10(tmp_path, "test")) == builders.CIFAR_TEST


def test_wrong_paths(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file or folder"):
        cifar10(tmp_path / "absent", "test")
    with pytest.raises(DataError, match="'cifar10' needs to know where"):
        cifar10(None, "test")
    with pytest.raises(DataError, match="none of the files"):
        cifar10(tmp_path, "test")
    stray = tmp_path / "stray.txt"
    stray.write_text("hello")
    with pytest.raises(DataError, match="none of the files"):
        cifar10(stray, "test")


def test_two_candidates_are_not_guessed_between(tmp_path: Path) -> None:
    builders.cifar10_python(tmp_path / "a")
    shutil.copytree(tmp_path / "a" / "cifar-10-batches-py", tmp_path / "b")
    shutil.move(tmp_path / "a" / "cifar-10-batches-py", tmp_path / "c")
    with pytest.raises(DataError, match=r"\(b, c\); name one of them"):
        cifar10(tmp_path, "test")


def test_cifar10_files_are_not_taken_for_cifar100(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="label column is not fine_label"):
        cifar100(builders.cifar10_parquet(tmp_path).root, "test")


def test_a_missing_batch_is_named(tmp_path: Path) -> None:
    root = builders.cifar10_python(tmp_path).root
    next(tmp_path.rglob("data_batch_4*")).unlink()
    with pytest.raises(DataError, match="no file data_batch_4"):
        cifar10(root, "train")


def test_labels_outside_the_classes_are_refused(tmp_path: Path) -> None:
    encoded = [png(image) for image in pictures(3, (3, 32, 32))]
    write_parquet(tmp_path / "test-0.parquet", encoded, {"label": [0, 10, 1]})
    with pytest.raises(DataError, match=r"position 1 of cifar10 is 10"):
        cifar10(tmp_path, "test")


def test_python_batch_of_another_checksum_is_not_opened(tmp_path: Path) -> None:
    images = pictures(3, (3, 32, 32), seed=9)
    write_files(tmp_path, {"test_batch": python_batch(images, numbered(3))})
    with pytest.raises(DataError, match=r"test_batch does not have the published checksum.*npz or \.parquet"):
        cifar10(tmp_path, "test")


@pytest.mark.parametrize("share", [0.0, 0.2, 0.95])
def test_a_truncated_archive_is_refused(tmp_path: Path, share: float) -> None:
    builders.cifar10_python_archive(tmp_path)
    path = tmp_path / "cifar-10-python.tar.gz"
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(DataError, match="gz does not have the published checksum"):
        cifar10(tmp_path, "test")


def test_a_batch_that_cannot_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def deny(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    builders.cifar10_python(tmp_path)
    monkeypatch.setattr(Path, "read_bytes", deny)
    with pytest.raises(DataError, match=r"test_batch as a batch of images: Permission denied"):
        cifar10(tmp_path, "test")


@pytest.mark.shared
def test_the_real_cifar10(shared_data: Path) -> None:
    test = cifar10(shared_data / "cifar10", "test")
    assert len(test) == 10_000
    assert np.bincount(test.labels).tolist() == [1000] * 10
    mean, std = test.images.mean(axis=(0, 2, 3)) / 255, test.images.std(axis=(0, 2, 3)) / 255
    np.testing.assert_allclose(mean, test.info.mean, atol=0.01)
    assert (std > test.info.std).all()  # the field's deviations are means of per-image ones, hence smaller
    assert len(select(test, SubsetConfig(every=20))) == 500


@pytest.mark.shared
def test_the_real_training_split_announces_50_000_rows(shared_data: Path) -> None:
    import pyarrow.parquet as pq

    files = sorted((shared_data / "cifar10").glob("train-*.parquet"))
    assert sum(pq.ParquetFile(file).metadata.num_rows for file in files) == 50_000


IMAGES, LABELS = "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"


@pytest.mark.parametrize("packed", [False, True])
def test_contents(tmp_path: Path, packed: bool) -> None:
    mnist_files(tmp_path, packed=packed)
    for dataset in (mnist(tmp_path, "test"), fashion_mnist(tmp_path, "test")):
        assert np.array_equal(dataset.images[:, 0], pictures(5, (28, 28), seed=5))
        assert np.array_equal(dataset.labels, numbered(5))
    assert len(mnist(tmp_path, "train")) == 12


def test_two_sets_below_one_root_are_not_guessed_between(tmp_path: Path) -> None:
    mnist_files(tmp_path / "mnist")
    mnist_files(tmp_path / "fashion")
    with pytest.raises(DataError, match=r"\(fashion, mnist\)"):
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
        (b"", "begins with nothing"),
        (idx(pictures(2, (28, 28)))[:10], "begins with"),
        (idx(numbered(2).astype(np.uint8)), "begins with 00000801"),
        (b"\x00\x00\x0d\x03" + bytes(12), "begins with 00000d03"),
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
    with pytest.raises(DataError, match="not a complete idx file"):
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
    messages = {"size": r"\[N, 1, 28, 28\]", "label": "position 1 of mnist is 10", "count": "2 labels"}
    for name, change in wrong.items():
        write_files(tmp_path / name, good | change)
        with pytest.raises(DataError, match=messages[name]):
            mnist(tmp_path / name, "test")


def test_the_split_never_changes() -> None:
    train, test = digits("train"), digits("test")
    assert (len(train), len(test)) == (1437, 360)
    assert train.fingerprint.startswith("d362cf747566a2fc")
    assert test.fingerprint.startswith("dbd68dce2f11cada")


def test_both_splits_together_are_the_original() -> None:
    original, labels = load_digits(return_X_y=True)
    parts = [digits("train"), digits("test")]
    images = np.concatenate([part.images.reshape(-1, 64) for part in parts])
    together = np.column_stack([images, np.concatenate([part.labels for part in parts])])
    expected = np.column_stack([original, labels])
    assert sorted(map(tuple, together.tolist())) == sorted(map(tuple, expected.tolist()))


def test_the_constants_are_those_of_the_training_split() -> None:
    train = digits("train")
    mean, std = statistics(train.images, train.info.grid.max_value)
    np.testing.assert_allclose(train.info.mean, mean, atol=5e-5)
    np.testing.assert_allclose(train.info.std, std, atol=5e-5)
    assert int(train.images.max()) == train.info.grid.max_value == 16


def test_every_class_is_in_the_test_split() -> None:
    assert np.bincount(digits("test").labels, minlength=10).min() >= 25
