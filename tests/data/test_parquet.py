from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smoothheads.data.parquet import read_parquet
from smoothheads.errors import DataError

from .builders import numbered, pictures, png, write_parquet

SHAPE = (3, 8, 8)


def write(folder: Path, **changes: Any) -> Path:
    encoded = changes.get("encoded", [png(image) for image in pictures(4, SHAPE)])
    labels = changes.get("labels", pa.array(numbered(4)))
    path = folder / str(changes.get("name", "test-00000-of-00001.parquet"))
    write_parquet(path, encoded, {changes.get("column", "label"): labels})
    return path


def read(folder: Path) -> Any:
    return read_parquet(folder, "test", "label", SHAPE)


def test_rows_keep_their_order_over_files(tmp_path: Path) -> None:
    images, labels = pictures(5, SHAPE), numbered(5)
    for shard, part in enumerate((slice(0, 2), slice(2, 5))):
        name = f"test-0000{shard}-of-00002.parquet"
        write(tmp_path, name=name, encoded=[png(i) for i in images[part]], labels=labels[part])
    read_images, read_labels = read(tmp_path)
    assert np.array_equal(read_images, images)
    assert np.array_equal(read_labels, labels)


def test_plain_bytes_columns_are_read(tmp_path: Path) -> None:
    images = pictures(3, SHAPE)
    table = pa.table({"image": [png(image) for image in images], "label": numbered(3)})
    pq.write_table(table, tmp_path / "test-0.parquet")
    assert np.array_equal(read(tmp_path)[0], images)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"column": "fine"}, "the label column 'label'"),
        ({"labels": pa.array([1, None, 2, 3])}, "1 missing"),
        ({"labels": pa.array(["a", "b", "c", "d"])}, "integer labels in .*, got string"),
        ({"encoded": [None, b"", b"", b""]}, "1 missing; store the encoded images"),
        ({"encoded": [b"nonsense"] * 4}, "whole image at .*, row 0"),
        ({"encoded": [png(pictures(1, SHAPE)[0])[:-40]] * 4}, "whole image"),
        ({"encoded": [png(pictures(1, (3, 8, 9))[0])] * 4}, "8x8 in .*, row 0, got 8x9"),
        ({"name": "test-00000-of-00003.parquet"}, "3 parquet files"),
    ],
)
def test_wrong_content_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    write(tmp_path, **changes)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_images_must_be_bytes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"img": ["a.png"], "label": [1]}), tmp_path / "test-0.parquet")
    with pytest.raises(DataError, match="not their paths"):
        read(tmp_path)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.98])
def test_a_truncated_file_is_refused(tmp_path: Path, share: float) -> None:
    path = write(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])
    with pytest.raises(DataError, match="whole parquet file"):
        read(tmp_path)
