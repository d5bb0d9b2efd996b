from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from smoothheads.data import SubsetConfig, load, load_test, select
from smoothheads.data.cifar import Cifar10, Cifar100
from smoothheads.errors import DataError

from . import builders
from .builders import (
    binary_records,
    cifar10,
    cifar100,
    cifar_content,
    fine_batch,
    numbered,
    pictures,
    python_batch,
    write_files,
)

TEN = ("parquet", "binary", "binary_archive", "python", "python_archive")
HUNDRED = ("parquet", "binary", "python", "python_archive")


@pytest.mark.parametrize("kind", TEN)
def test_cifar10_is_the_same_from_every_source(tmp_path: Path, kind: str) -> None:
    root = builders.BUILDERS[f"cifar10_{kind}"](tmp_path).root
    for split in ("train", "test"):
        dataset = cifar10(root, split)
        images, labels = cifar_content(split)
        assert np.array_equal(dataset.images, images)
        assert np.array_equal(dataset.labels, labels)


@pytest.mark.parametrize("kind", HUNDRED)
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


@pytest.mark.parametrize("kind", ["parquet", "binary", "python"])
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
    with pytest.raises(DataError, match="no such file or folder"):
        cifar10(tmp_path / "absent", "test")
    with pytest.raises(DataError, match="a root for the data set 'cifar10'"):
        cifar10(None, "test")
    with pytest.raises(DataError, match="none of them"):
        cifar10(tmp_path, "test")
    stray = tmp_path / "stray.txt"
    stray.write_text("hello")
    with pytest.raises(DataError, match="none of them"):
        cifar10(stray, "test")


def test_two_candidates_are_not_guessed_between(tmp_path: Path) -> None:
    builders.cifar10_binary(tmp_path / "a")
    shutil.copytree(tmp_path / "a" / "cifar-10-batches-bin", tmp_path / "b")
    shutil.move(tmp_path / "a" / "cifar-10-batches-bin", tmp_path / "c")
    with pytest.raises(DataError, match="got b, c; name one of them"):
        cifar10(tmp_path, "test")


def test_cifar10_files_are_not_taken_for_cifar100(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'fine_label'"):
        cifar100(builders.cifar10_parquet(tmp_path).root, "test")


@pytest.mark.parametrize("kind", ["binary", "python"])
def test_a_missing_batch_is_named(tmp_path: Path, kind: str) -> None:
    root = builders.BUILDERS[f"cifar10_{kind}"](tmp_path).root
    next(tmp_path.rglob("data_batch_4*")).unlink()
    with pytest.raises(DataError, match="the file data_batch_4"):
        cifar10(root, "train")


@pytest.mark.parametrize("size", [0, 1, 3072, 5 * 3073 + 1])
def test_a_binary_batch_of_the_wrong_length_is_refused(tmp_path: Path, size: int) -> None:
    write_files(tmp_path, {"test_batch.bin": bytes(size)})
    with pytest.raises(DataError, match=f"3073-byte records at .*, got {size} bytes"):
        cifar10(tmp_path, "test")


def test_labels_outside_the_classes_are_refused(tmp_path: Path) -> None:
    images = pictures(3, (3, 32, 32))
    write_files(tmp_path / "bin", {"test_batch.bin": binary_records(images, np.array([0, 10, 1]))})
    write_files(tmp_path / "py", {"test_batch": python_batch(images, np.array([0, -1, 1]))})
    with pytest.raises(DataError, match=r"labels 0\.\.9 in cifar10, got 10 at position 1"):
        cifar10(tmp_path / "bin", "test")
    with pytest.raises(DataError, match=r"got -1 at position 1"):
        cifar10(tmp_path / "py", "test")


@pytest.mark.parametrize(
    ("batch", "message"),
    [
        (python_batch(pictures(2, (3, 16, 16)), numbered(2)), r"got uint8 of shape \(2, 768\)"),
        (python_batch(pictures(2, (3, 32, 32)), numbered(3)), "2 labels at .*, got 3"),
        (fine_batch(pictures(2, (3, 32, 32)), numbered(2)), "'labels' as integers"),
        (builders.python2_pickle({"labels": [1, 2]}), "'data' as bytes"),
        (builders.python2_pickle({"data": pictures(1, (3072,)), "labels": ["1"]}), "'labels' as integers"),
    ],
)
def test_a_python_batch_of_the_wrong_form_is_refused(tmp_path: Path, batch: bytes, message: str) -> None:
    write_files(tmp_path, {"test_batch": batch})
    with pytest.raises(DataError, match=message):
        cifar10(tmp_path, "test")


@pytest.mark.parametrize("share", [0.0, 0.2, 0.95])
@pytest.mark.parametrize("kind", ["binary", "python"])
def test_a_truncated_archive_is_refused(tmp_path: Path, kind: str, share: float) -> None:
    builders.BUILDERS[f"cifar10_{kind}_archive"](tmp_path)
    path = tmp_path / f"cifar-10-{kind}.tar.gz"
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(DataError, match="whole tar archive"):
        cifar10(tmp_path, "test")


def test_an_archive_without_the_batches_is_refused(tmp_path: Path) -> None:
    builders.write_tar(tmp_path / "cifar-10-binary.tar.gz", "elsewhere", {"readme.html": b"hi"})
    with pytest.raises(DataError, match=r"the file test_batch\.bin"):
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
