"""Writers of tiny data sets in the real file formats, and one of each kind for the contract tests."""

from __future__ import annotations

import gzip
import hashlib
import io
import pickle
import struct
import tarfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from smoothheads.data import DataConfig, Split, named

Images = NDArray[np.uint8]
Labels = NDArray[np.int64]


def split_of(name: str, root: Path | str | None, split: Split, **fields: Any) -> Any:
    """A split as its data set reads it."""
    return named(name, root=None if root is None else str(root), **fields).read(split)


cifar10, cifar100, npz = (partial(split_of, name) for name in ("cifar10", "cifar100", "npz"))
mnist, fashion_mnist = (partial(split_of, name) for name in ("mnist", "fashion-mnist"))
image_folder = partial(split_of, "folder", size=224)
digits = partial(split_of, "digits", None)


def pictures(count: int, shape: tuple[int, ...], seed: int = 0, q: int = 255) -> Images:
    return np.random.default_rng(seed).integers(0, q + 1, (count, *shape), dtype=np.uint8)


def numbered(count: int, classes: int = 10) -> Labels:
    return np.arange(count, dtype=np.int64) * 7 % classes


def png(image: Images) -> bytes:
    """[3, H, W] without loss."""
    file = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(file, "PNG")
    return file.getvalue()


def write_parquet(
    path: Path, encoded: Sequence[bytes | None], columns: dict[str, Any], image: str = "img"
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [None if data is None else {"bytes": data, "path": None} for data in encoded]
    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    pq.write_table(pa.table({image: pa.array(rows, kind), **columns}), path)


def python_batch(images: Images, labels: Labels, key: str = "labels") -> bytes:
    """CIFAR's python format, whose keys were byte strings of Python 2."""
    content = {b"data": images.reshape(len(images), -1), key.encode(): labels.tolist()}
    return pickle.dumps(content, protocol=2)


def checksums() -> dict[str, str]:
    """The published checksums, but of the batches below: the tests put them in the place of the real ones."""
    ten, hundred = cifar10_files(), cifar100_files()
    archives = {
        "cifar-10-python.tar.gz": packed_tar("cifar-10-batches-py", ten),
        "cifar-100-python.tar.gz": packed_tar("cifar-100-python", hundred),
    }
    files = ten | hundred | archives
    return {name: hashlib.md5(data).hexdigest() for name, data in files.items()}


def write_tar(path: Path, folder: str, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(packed_tar(folder, files))


def packed_tar(folder: str, files: dict[str, bytes]) -> bytes:
    """The same bytes every time."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return gzip.compress(file.getvalue(), mtime=0)


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def idx(array: NDArray[np.uint8]) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_image(path: Path, size: tuple[int, int], seed: int = 0) -> None:
    """A smooth picture, (width, height): noise would not survive JPEG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    coarse = np.random.default_rng(seed).integers(0, 256, (4, 4, 3), dtype=np.uint8)
    Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC).save(path)


CIFAR_TRAIN, CIFAR_TEST = 20, 6


def cifar_content(split: str, classes: int = 10) -> tuple[Images, Labels]:
    count = CIFAR_TRAIN if split == "train" else CIFAR_TEST
    return pictures(count, (3, 32, 32), seed=len(split)), numbered(count, classes)


def cifar10_files() -> dict[str, bytes]:
    images, labels = cifar_content("train")
    parts = np.array_split(np.arange(CIFAR_TRAIN), 5)
    files = {f"data_batch_{i}": python_batch(images[p], labels[p]) for i, p in enumerate(parts, start=1)}
    return files | {"test_batch": python_batch(*cifar_content("test"))}


def cifar100_files() -> dict[str, bytes]:
    return {split: python_batch(*cifar_content(split, 100), "fine_labels") for split in ("train", "test")}


def cifar10_parquet(root: Path) -> DataConfig:
    for split in ("train", "test"):
        images, labels = cifar_content(split)
        for shard, part in enumerate(np.array_split(np.arange(len(labels)), 2)):
            path = root / "plain_text" / f"{split}-0000{shard}-of-00002.parquet"
            write_parquet(path, [png(image) for image in images[part]], {"label": labels[part]})
    return named("cifar10", root=str(root))


def cifar100_parquet(root: Path) -> DataConfig:
    for split in ("train", "test"):
        images, labels = cifar_content(split, 100)
        columns = {"coarse_label": labels // 5, "fine_label": labels}
        path = root / f"{split}-00000-of-00001.parquet"
        write_parquet(path, [png(image) for image in images], columns, image="image")
    return named("cifar100", root=str(root))


def cifar10_python(root: Path) -> DataConfig:
    write_files(root / "cifar-10-batches-py", cifar10_files())
    return named("cifar10", root=str(root))


def cifar10_python_archive(root: Path) -> DataConfig:
    path = root / "cifar-10-python.tar.gz"
    write_tar(path, "cifar-10-batches-py", cifar10_files())
    return named("cifar10", root=str(path))


def cifar100_python(root: Path) -> DataConfig:
    write_files(root / "cifar-100-python", cifar100_files())
    return named("cifar100", root=str(root))


def cifar100_python_archive(root: Path) -> DataConfig:
    write_tar(root / "cifar-100-python.tar.gz", "cifar-100-python", cifar100_files())
    return named("cifar100", root=str(root))


def mnist_files(root: Path, *, packed: bool = False) -> None:
    for prefix, count in (("train", 12), ("t10k", 5)):
        images = pictures(count, (28, 28), seed=count)
        contents = {
            "images-idx3-ubyte": idx(images),
            "labels-idx1-ubyte": idx(numbered(count).astype(np.uint8)),
        }
        for name, data in contents.items():
            files = {f"{prefix}-{name}.gz": gzip.compress(data)} if packed else {f"{prefix}-{name}": data}
            write_files(root, files)


def mnist_plain(root: Path) -> DataConfig:
    mnist_files(root)
    return named("mnist", root=str(root))


def fashion_packed(root: Path) -> DataConfig:
    mnist_files(root / "raw", packed=True)
    return named("fashion-mnist", root=str(root))


def folder_of_images(root: Path) -> DataConfig:
    for split, count in (("train", 4), ("val", 2)):
        for label, name in enumerate(("n01", "n02", "n03")):
            for i in range(count):
                size = (260 + 10 * i, 300 - 10 * label)
                write_image(root / split / name / f"{name}_{i}.JPEG", size, seed=10 * label + i)
    return named("folder", root=str(root), size=224)


def npz_file(root: Path) -> DataConfig:
    root.mkdir(parents=True, exist_ok=True)
    train, test = pictures(9, (6, 4, 3), q=100), pictures(4, (6, 4, 3), seed=1, q=100)
    np.savez(
        root / "own.npz",
        train_images=train,
        train_labels=numbered(9, 3),
        test_images=test,
        test_labels=numbered(4, 3),
        class_names=np.array(["a", "b", "c"]),
        max_value=100,
    )
    return named("npz", root=str(root / "own.npz"))


def built_in_digits(root: Path) -> DataConfig:
    return named("digits")


BUILDERS: dict[str, Callable[[Path], DataConfig]] = {
    builder.__name__: builder
    for builder in (
        built_in_digits,
        cifar10_parquet,
        cifar10_python,
        cifar10_python_archive,
        cifar100_parquet,
        cifar100_python,
        cifar100_python_archive,
        mnist_plain,
        fashion_packed,
        folder_of_images,
        npz_file,
    )
}
