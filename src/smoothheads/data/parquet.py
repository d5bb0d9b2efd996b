"""Images in parquet files laid out as on the Hugging Face hub: `train-00000-of-00002.parquet`, ..."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothheads.config import parse_json
from smoothheads.data.arrays import ArrayDataset
from smoothheads.data.base import DATASETS, DataConfig, DataInfo, Split, damaged, existing, only_place
from smoothheads.data.coerce import column_of, from_arrays
from smoothheads.data.images import decode, pixels, with_channels
from smoothheads.errors import ConfigError, DataError
from smoothheads.hub import is_address, parse
from smoothheads.limits import check_unpacked

SPLITS: dict[Split, tuple[str, ...]] = {"train": ("train",), "test": ("test", "validation", "val")}
ROWS_AT_ONCE = 1000
REMEDY = "name it with --data.name parquet --data.{}-column NAME"

Shape = tuple[int, int, int]


class Content(NamedTuple):
    """The content of the parquet files of a split."""

    images: NDArray[np.uint8]
    """[N, C, H, W], one channel if every picture is grey and no shape was given."""
    labels: NDArray[np.int64]
    class_names: tuple[str, ...] | None
    """The names that the file gives to its labels, as `datasets` writes them."""


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Parquet(DataConfig):
    """Any image classification set in parquet: a file, or a folder of train-*.parquet and test-*.parquet."""

    name: ClassVar[str] = "parquet"

    image_column: str | None = None
    """Column of the encoded images (default: image, images or img)."""
    label_column: str | None = None
    """Column of the integer labels (default: label, labels or fine_label)."""

    def read(self, split: Split) -> ArrayDataset:
        """Returns a split, with classes, mean and standard deviation of the training images.

        Without training images the test split has mean 0 and standard deviation 1, because test images choose
        nothing.
        """
        root = existing(self.root, self.name)
        train = find_parquet(root, self.name, "train")
        files = train if split == "train" else find_parquet(root, self.name, split)
        if split == "test" and root.is_file():
            files = [root]
        if not files:
            names = " or ".join(f"{name}-*.parquet" for name in SPLITS[split])
            raise DataError(f"{root} has no {names}; check the path.")
        read = partial(read_parquet, image=self.image_column, label=self.label_column)
        content = read(files)
        # The training images give the classes, mean and standard deviation of both splits.
        source = content if split == "train" or not train else read(train)
        name = parse(self.root).repo.rpartition("/")[2] if is_address(self.root) else root.resolve().stem
        info = from_arrays(source.images, source.labels, classes=source.class_names, name=name).info
        return ArrayDataset(content.images, content.labels, info if train else info.unnormalized())


def published(files: Sequence[Path], info: DataInfo, label_column: str, split: Split) -> ArrayDataset:
    """Returns a split of a published set; raises DataError for the files of another one, as far as shape,
    labels and class names tell."""
    content = read_parquet(files, label=label_column, shape=info.shape)
    if content.class_names not in (None, info.class_names):
        classes = ", ".join(content.class_names[:5])
        raise DataError(
            f"{files[0]} is not {info.name} ({split}): its classes are {classes}, ...; read it with "
            "--data.name parquet."
        )
    return ArrayDataset(content.images, content.labels, info)


def find_parquet(root: Path, name: str, split: Split) -> list[Path]:
    """Returns all files of a split, in the root or in the only folder below that has some, or [].

    The names of the files say how many there must be.
    """
    for prefix in SPLITS[split]:
        pattern = f"{prefix}-*.parquet"
        # The files lie in the root or in one folder below it, such as `data` or `plain_text`.
        folder = only_place(root, name, lambda place, p=pattern: any(place.glob(p)))  # type: ignore[misc]
        if folder is not None:
            paths = sorted(folder.glob(pattern))
            # `-00000-of-00002` tells how many files the split has.
            counts = [
                int(match[1]) for path in paths if (match := re.search(r"-of-(\d+)\.parquet$", path.name))
            ]
            if counts and (set(counts) != {len(paths)} or len(counts) != len(paths)):
                raise DataError(
                    f"{folder} has {len(paths)} of {counts[0]} parquet files {prefix}-*; fetch them all."
                )
            return paths
    return []


def read_parquet(
    files: Sequence[Path], image: str | None = None, label: str | None = None, shape: Shape | None = None
) -> Content:
    """Returns images and labels in the order of the files and their rows.

    Args:
        image: the column of the images, by default the one with a usual name.
        label: the column of the labels, likewise.
        shape: the shape [C, H, W] that all images must have, by default that of the first.
    """
    rows = packed = row = 0
    for path in files:
        with _opened(path) as file:
            rows, packed = rows + file.metadata.num_rows, packed + path.stat().st_size
    images: NDArray[np.uint8] | None = None
    labels: list[NDArray[np.int64]] = []
    names: tuple[str, ...] | None = None
    for path in files:
        with _opened(path) as file:
            schema = file.schema_arrow
            image_column = column_of("image", image, schema.names, REMEDY.format("image"))
            label_column = column_of("label", label, schema.names, REMEDY.format("label"))
            names = names or _class_names(schema, label_column)
            # Other columns are never read.
            for batch in file.iter_batches(ROWS_AT_ONCE, columns=[image_column, label_column]):
                labels.append(_labels(batch.column(label_column), path))
                for data in _encoded(batch.column(image_column), path):
                    source = f"{path}, row {row}"
                    picture = pixels(decode(data, source))
                    if images is None:
                        # The size of the first picture says what all will take, before they are decoded:
                        # equal rows cost a file almost nothing.
                        check_unpacked(rows * picture.size, packed, path)
                        images = np.empty((rows, *(shape or picture.shape)), np.uint8)
                    # Every picture must have the size of the first one.
                    if picture.shape[1:] != images.shape[2:]:
                        raise DataError(
                            f"{source} is {picture.shape[1]}x{picture.shape[2]} instead of "
                            f"{images.shape[2]}x{images.shape[3]}; resize the images first."
                        )
                    images[row] = with_channels(picture, images.shape[1], source)
                    row += 1
    if images is None or row != rows:
        raise DataError(f"{files[0]} has no images, or fewer than it announces; check the path.")
    # Pictures that are all grey have one channel, unless a shape was asked for.
    if shape is None and all(np.array_equal(images[:, 0], images[:, c]) for c in (1, 2)):
        images = images[:, :1]
    return Content(images, np.concatenate(labels), names)


def encoded_images(path: Path) -> Iterator[bytes]:
    """Yields the images of one file as they are stored, row by row; no labels are needed."""
    with _opened(path) as file:
        column = column_of("image", None, file.schema_arrow.names, REMEDY.format("image"))
        for batch in file.iter_batches(ROWS_AT_ONCE, columns=[column]):
            yield from _encoded(batch.column(column), path)


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Yields the file with pages whose checksums are compared; its errors become a DataError."""
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(path, page_checksum_verification=True) as file:
            # The footer announces what the pages unpack to.
            meta = file.metadata
            groups = [meta.row_group(number) for number in range(meta.num_row_groups)]
            size = sum(
                group.column(i).total_uncompressed_size for group in groups for i in range(meta.num_columns)
            )
            check_unpacked(size, path.stat().st_size, path)
            yield file
    except (pyarrow.ArrowException, OSError, UnicodeDecodeError) as error:  # the last: of a column's name
        raise damaged(path, "parquet file", error) from error


def _class_names(schema: Any, label_column: str) -> tuple[str, ...] | None:
    """Returns the names that `datasets` writes into the schema's metadata, or None if it has none."""
    # JSON: {"info": {"features": {LABEL: {"names": [...]}}}}
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
    """Returns a column of whole numbers, of which none may be missing."""
    import pyarrow

    if column.null_count or not pyarrow.types.is_integer(column.type):
        raise DataError(
            f"The labels in {path} must be integers, not {column.type} with {column.null_count} missing; "
            "check that this is the right data set."
        )
    labels: NDArray[np.int64] = column.to_numpy(zero_copy_only=False).astype(np.int64)
    return labels


def _encoded(column: Any, path: Path) -> list[bytes]:
    """Returns the encoded pictures of a column."""
    import pyarrow

    # A column of bytes, or of structs {bytes, path} as `datasets` writes them.
    struct = pyarrow.types.is_struct(column.type) and column.type.get_field_index("bytes") >= 0
    values = column.field("bytes") if struct else column
    binary = pyarrow.types.is_binary(values.type) or pyarrow.types.is_large_binary(values.type)
    if not binary or values.null_count:
        raise DataError(
            f"The images in {path} must be stored as bytes, not as {column.type} with {values.null_count} "
            "missing; store the encoded images, not their paths."
        )
    encoded: list[bytes] = values.to_pylist()
    return encoded
