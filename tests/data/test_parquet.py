from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from smoothheads.data import load, load_test, named
from smoothheads.data.parquet import find_parquet, read_parquet
from smoothheads.data.published import Mnist
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
    content = read_parquet(find_parquet(folder, "mine", "test"), shape=SHAPE)
    return content.images, content.labels


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
        ({"column": "fine"}, "label column is not"),
        ({"labels": pa.array([1, None, 2, 3])}, "1 missing"),
        ({"labels": pa.array(["a", "b", "c", "d"])}, "must be integers, not string"),
        ({"encoded": [None, b"", b"", b""]}, "1 missing; store the encoded images"),
        ({"encoded": [b"nonsense"] * 4}, "row 0 is not a complete image"),
        ({"encoded": [png(pictures(1, SHAPE)[0])[:-40]] * 4}, "not a complete image"),
        ({"encoded": [png(pictures(1, (3, 8, 9))[0])] * 4}, "row 0 is 8x9"),
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
    with pytest.raises(DataError, match="not a complete parquet file"):
        read(tmp_path)


def hub(names: list[str], column: str = "label") -> dict[bytes, bytes]:
    """What `datasets` writes beside the schema."""
    features = {column: {"names": names, "_type": "ClassLabel"}}
    return {b"huggingface": json.dumps({"info": {"features": features}}).encode()}


def write_set(root: Path, shape: tuple[int, ...], names: list[str] | None = None, **columns: str) -> Any:
    """Two splits with columns of any name."""
    image, label = columns.get("image", "image"), columns.get("label", "label")
    for split, count in (("train", 6), ("test", 4)):
        images, labels = pictures(count, shape, seed=count), numbered(count, 3)
        encoded = [png(np.broadcast_to(x, (3, *shape[-2:]))) for x in images]
        table = pa.table({image: encoded, label: labels, "extra": labels})
        pq.write_table(
            table.replace_schema_metadata(hub(names, label) if names else None), root / f"{split}-0.parquet"
        )
    return pictures(4, shape, seed=4)


@pytest.mark.parametrize("columns", [{}, {"image": "photo", "label": "kind"}])
@pytest.mark.parametrize("names", [None, ["cat", "dog", "eel"]])
def test_any_set_with_its_column_names(
    tmp_path: Path, columns: dict[str, str], names: list[str] | None
) -> None:
    images = write_set(tmp_path, (3, 9, 7), names, **columns)
    named_columns = {f"{kind}_column": name for kind, name in columns.items()}
    splits = load(named("parquet", root=str(tmp_path), validation=0, **named_columns))
    assert np.array_equal(splits.test.image(2), images[2])
    assert splits.test.info == splits.train.info
    assert splits.test.info.class_names == tuple(names or "012")


def test_a_set_of_grey_pictures_has_one_channel(tmp_path: Path) -> None:
    images = write_set(tmp_path, (1, 9, 7))
    assert np.array_equal(load_test(named("parquet", root=str(tmp_path))).image(1), images[1])


def test_one_file_is_a_test_split(tmp_path: Path) -> None:
    write_set(tmp_path, (3, 8, 8))
    test = load_test(named("parquet", root=str(tmp_path / "test-0.parquet")))
    assert (len(test), test.info.mean) == (4, (0.0, 0.0, 0.0))


def test_columns_that_are_not_there_are_asked_for(tmp_path: Path) -> None:
    write_set(tmp_path, (3, 8, 8), image="photo")
    message = r"image column is not .*\(columns: photo, label, extra\); .*--data\.image-column NAME"
    with pytest.raises(DataError, match=message):
        load_test(named("parquet", root=str(tmp_path)))


def test_mnist_from_the_hub(tmp_path: Path) -> None:
    images = write_set(tmp_path, (1, 28, 28))
    test = load_test(named("mnist", root=str(tmp_path)))
    assert np.array_equal(test.image(3), images[3])
    assert test.info == Mnist.known


def test_another_set_does_not_pass_as_a_published_one(tmp_path: Path) -> None:
    write_set(tmp_path, (3, 32, 32), ["cat", "dog", "eel"])
    with pytest.raises(DataError, match=r"not cifar10 \(test\): its classes are cat, dog, eel, .*parquet"):
        load_test(named("cifar10", root=str(tmp_path)))
    write_set(tmp_path, (3, 32, 32))
    assert len(load_test(named("cifar10", root=str(tmp_path)))) == 4
    write_set(tmp_path, (1, 32, 32))
    with pytest.raises(DataError, match="is 32x32 instead of 28x28"):
        load_test(named("mnist", root=str(tmp_path)))


def test_a_column_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "odd.parquet"
    write_parquet(path, [png(picture) for picture in pictures(2, (3, 32, 32))], {"zzzz": [0, 1]})
    path.write_bytes(path.read_bytes().replace(b"zzzz", b"\xe9zzz"))
    with pytest.raises(DataError, match="parquet"):
        read_parquet([path], shape=(3, 32, 32))
