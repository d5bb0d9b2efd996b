"""Images in parquet files laid out as on the Hugging Face hub: `train-00000-of-00002.parquet`, ..."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.base import Split
from smoothheads.data.check import damaged
from smoothheads.data.images import decode, pixels
from smoothheads.errors import DataError

IMAGE_COLUMNS = ("img", "image")
ROWS_AT_ONCE = 1000


def holds_parquet(folder: Path, split: Split) -> bool:
    return any(folder.glob(f"{split}-*.parquet"))


def read_parquet(
    folder: Path, split: Split, label_column: str, shape: tuple[int, int, int]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images [N, C, H, W] and labels of a split, in the order of the files and their rows."""
    parts = [_read_file(path, label_column, shape) for path in _shards(folder, split)]
    return np.concatenate([images for images, _ in parts]), np.concatenate([labels for _, labels in parts])


def _shards(folder: Path, split: Split) -> list[Path]:
    """All files of a split; their names say how many there must be."""
    paths = sorted(folder.glob(f"{split}-*.parquet"))
    counts = [int(match[1]) for path in paths if (match := re.search(r"-of-(\d+)\.parquet$", path.name))]
    if counts and (set(counts) != {len(paths)} or len(counts) != len(paths)):
        raise DataError(f"{counts[0]} parquet files {split}-* in {folder}", f"{len(paths)}", "fetch them all")
    return paths


def _read_file(
    path: Path, label_column: str, shape: tuple[int, int, int]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    import pyarrow.parquet

    with _reading(path), pyarrow.parquet.ParquetFile(path) as file:
        names = file.schema_arrow.names
        image_column = _column("image", IMAGE_COLUMNS, names, path)
        _column("label", (label_column,), names, path)
        images = np.empty((file.metadata.num_rows, *shape), np.uint8)
        labels = np.empty(len(images), np.int64)
        row = 0
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=[image_column, label_column]):
            labels[row : row + len(batch)] = _labels(batch.column(label_column), path)
            for data in _encoded(batch.column(image_column), path):
                images[row] = _pixels(data, shape, f"{path}, row {row}")
                row += 1
    return images, labels


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError) as error:
        raise damaged(path, "parquet file", error) from error


def _column(kind: str, known: tuple[str, ...], names: list[str], path: Path) -> str:
    for name in known:
        if name in names:
            return name
    expected = f"{kind} column {' or '.join(map(repr, known))} in {path}"
    raise DataError(f"the {expected}", ", ".join(names), "check that this is the right data set")


def _labels(column: Any, path: Path) -> NDArray[np.int64]:
    import pyarrow

    if column.null_count or not pyarrow.types.is_integer(column.type):
        got = f"{column.type} with {column.null_count} missing"
        raise DataError(f"integer labels in {path}", got, "check that this is the right data set")
    labels: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return labels


def _encoded(column: Any, path: Path) -> list[bytes]:
    import pyarrow

    held = (
        column.field("bytes") if pyarrow.types.is_struct(column.type) and _has_bytes(column.type) else column
    )
    if (
        not (pyarrow.types.is_binary(held.type) or pyarrow.types.is_large_binary(held.type))
        or held.null_count
    ):
        got = f"{column.type} with {held.null_count} missing"
        raise DataError(
            f"images as {{bytes, path}} in {path}", got, "store the encoded images, not their paths"
        )
    encoded: list[bytes] = held.to_pylist()
    return encoded


def _has_bytes(struct: Any) -> bool:
    return any(struct.field(index).name == "bytes" for index in range(struct.num_fields))


def _pixels(data: bytes, shape: tuple[int, int, int], source: str) -> NDArray[np.uint8]:
    image = pixels(decode(data, source))
    if image.shape != shape:
        got = f"{image.shape[1]}x{image.shape[2]}"
        raise DataError(f"an image of {shape[1]}x{shape[2]} in {source}", got, "resize the images first")
    return image
