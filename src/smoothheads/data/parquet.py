"""Images in parquet files laid out as on the Hugging Face hub: `train-00000-of-00002.parquet`, ..."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from smoothheads.config import parse_json
from smoothheads.data.arrays import ArrayDataset
from smoothheads.data.base import DataInfo, Split
from smoothheads.data.check import MISTAKEN_PATH, damaged, existing, labels_within, only_place
from smoothheads.data.coerce import Kind, column_of, from_arrays
from smoothheads.data.config import DATASETS, DataConfig
from smoothheads.data.images import decode, pixels, with_channels
from smoothheads.errors import ConfigError, DataError
from smoothheads.hub import is_address, parse

SPLITS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("test", "validation", "val")}
ROWS_AT_ONCE = 1000
EXTRACT = 1000  # images that may be a part of a published set, for a trial
MAX_BYTES = 4 << 30  # of pixels in memory

Shape = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class Content:
    images: NDArray[np.uint8]
    """[N, C, H, W], one channel if every picture is grey and no shape was asked for."""
    labels: NDArray[np.int64]
    class_names: tuple[str, ...] | None
    """What the file says about its labels, as `datasets` writes it."""


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Parquet(DataConfig):
    """Any image classification set in parquet: a file, or a folder of train-*.parquet and test-*.parquet."""

    name: ClassVar[str] = "parquet"

    image_column: str | None = None
    """Column of the encoded images (default: image, img, images or pixel_values)."""
    label_column: str | None = None
    """Column of the integer labels (default: label, labels, fine_label, class or target)."""

    def read(self, split: Split) -> ArrayDataset:
        """Classes, mean and deviation are those of the training images; without them the test split has mean
        0 and deviation 1, since test images teach nothing."""
        root = existing(self.root, self.name)
        content = self._content(root, split)
        if split == "train":
            return self._dataset(content, root)
        if find_parquet(root, self.name, "train"):
            info = self._dataset(self._content(root, "train"), root).info
            return ArrayDataset(content.images, content.labels, info)
        test = self._dataset(content, root)
        return replace(test, info=test.info.unnormalized())

    def _content(self, root: Path, split: Split) -> Content:
        files = [root] if root.is_file() and split == "test" else find_parquet(root, self.name, split)
        if not files:
            names = " or ".join(f"{name}-*.parquet" for name in SPLITS[split])
            raise DataError(f"{names} in {root}", "none", MISTAKEN_PATH)
        return read_parquet(files, self.image_column, self.label_column)

    def _dataset(self, content: Content, root: Path) -> ArrayDataset:
        name = parse(self.root).repo.rpartition("/")[2] if is_address(self.root) else root.resolve().stem
        return from_arrays(content.images, content.labels, classes=content.class_names, name=name)


def published(
    files: Sequence[Path], info: DataInfo, label_column: str, split: Split, size: int
) -> ArrayDataset:
    """A split of a known set; raises DataError for the files of another one, as far as they tell: by class
    names, labels, shape, and the number of images unless it is a small extract."""
    content = read_parquet(files, label=label_column, asked=info.shape)
    labels_within(content.labels, info.classes, str(files[0]))
    names, count = content.class_names, len(content.labels)
    if names not in (None, info.class_names):
        expected, got = f"the class names of {info.name}", ", ".join((names or ())[:5])
    elif count != size and count > EXTRACT:
        expected, got = f"{size} images of {info.name} ({split})", str(count)
    else:
        return ArrayDataset(content.images, content.labels, info)
    raise DataError(f"{expected} in {files[0]}", got, "read another data set as --data.name parquet")


def find_parquet(root: Path, name: str, split: Split) -> list[Path]:
    """All files of a split, in the root or in the only folder below that has some; their names say how many
    there must be. Empty where there are none."""
    for prefix in SPLITS[split]:
        pattern = f"{prefix}-*.parquet"
        folder = only_place(root, name, lambda place, p=pattern: any(place.glob(p)))  # type: ignore[misc]
        if folder is not None:
            paths = sorted(folder.glob(pattern))
            counts = [
                int(match[1]) for path in paths if (match := re.search(r"-of-(\d+)\.parquet$", path.name))
            ]
            if counts and (set(counts) != {len(paths)} or len(counts) != len(paths)):
                expected = f"{counts[0]} parquet files {prefix}-* in {folder}"
                raise DataError(expected, f"{len(paths)}", "fetch them all")
            return paths
    return []


def read_parquet(
    files: Sequence[Path], image: str | None = None, label: str | None = None, asked: Shape | None = None
) -> Content:
    """Images and labels in the order of the files and their rows, from the columns of these names, by default
    of one of the usual ones; `asked` none: the shape of the first."""
    import pyarrow.parquet

    shape = asked
    images: list[NDArray[np.uint8]] = []
    labels: list[NDArray[np.int64]] = []
    names: tuple[str, ...] | None = None
    for path in files:
        with _reading(path), pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            schema = file.schema_arrow
            image_column = _column("image", image, schema.names, path)
            label_column = _column("label", label, schema.names, path)
            names = names or _class_names(schema, label_column)
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=[image_column, label_column]):
                labels.append(_labels(batch.column(label_column), path))
                for data in _encoded(batch.column(image_column), path):
                    source = f"{path}, row {len(images)}"
                    picture = pixels(decode(data, source))
                    shape = shape or (3, picture.shape[1], picture.shape[2])
                    images.append(_fitting(picture, shape, source))
                    if len(images) * picture.size > MAX_BYTES:
                        got = f"more in {path}"
                        remedy = "unpack the images into folders: --data.name folder"
                        raise DataError(f"at most {MAX_BYTES >> 30} GiB of pixels", got, remedy)
    if not images:
        raise DataError(f"images in {files[0]}", "none", MISTAKEN_PATH)
    stacked = np.stack(images)
    grey = asked is None and all((image == image[:1]).all() for image in images)
    return Content(stacked[:, :1] if grey else stacked, np.concatenate(labels), names)


def encoded_images(path: Path) -> Iterator[bytes]:
    """The images of one file as they are stored, row by row; labels are not asked for."""
    import pyarrow.parquet

    with _reading(path), pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
        column = _column("image", None, file.schema_arrow.names, path)
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=[column]):
            yield from _encoded(batch.column(column), path)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    import pyarrow

    try:
        yield
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: of a column's name
        raise damaged(path, "parquet file", error) from error


def _column(kind: Kind, named: str | None, names: list[str], path: Path) -> str:
    remedy = f"name it with --data.name parquet --data.{kind}-column NAME"
    return column_of(kind, named, names, where=f" in {path}", remedy=remedy)


def _class_names(schema: Any, label_column: str) -> tuple[str, ...] | None:
    """From what `datasets` writes beside the schema; none where it is not there or not readable."""
    text = (schema.metadata or {}).get(b"huggingface")
    try:
        value: Any = parse_json(text, "the schema") if text else {}
    except ConfigError:
        return None
    for key in ("info", "features", label_column, "names"):
        value = value.get(key) if isinstance(value, dict) else None
    if isinstance(value, list) and value and all(isinstance(name, str) for name in value):
        return tuple(value)
    return None


def _labels(column: Any, path: Path) -> NDArray[np.int64]:
    import pyarrow

    if column.null_count or not pyarrow.types.is_integer(column.type):
        got = f"{column.type} with {column.null_count} missing"
        raise DataError(f"integer labels in {path}", got, "check that this is the right data set")
    labels: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return labels


def _encoded(column: Any, path: Path) -> list[bytes]:
    import pyarrow

    struct = pyarrow.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0
    held = column.field("bytes") if struct else column
    binary = pyarrow.types.is_binary(held.type) or pyarrow.types.is_large_binary(held.type)
    if not binary or held.null_count:
        got = f"{column.type} with {held.null_count} missing"
        raise DataError(
            f"images as {{bytes, path}} in {path}", got, "store the encoded images, not their paths"
        )
    encoded: list[bytes] = held.to_pylist()
    return encoded


def _fitting(image: NDArray[np.uint8], shape: Shape, source: str) -> NDArray[np.uint8]:
    if image.shape[1:] != shape[1:]:
        got = f"{image.shape[1]}x{image.shape[2]}"
        raise DataError(f"an image of {shape[1]}x{shape[2]} in {source}", got, "resize the images first")
    return with_channels(image, shape[0], source)
