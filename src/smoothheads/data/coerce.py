"""The way in for what users have: arrays, tensors, pictures, and other libraries' data sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothheads.data.arrays import ArrayDataset, statistics
from smoothheads.data.base import DataInfo, Dataset
from smoothheads.data.onto_grid import (
    as_numpy,
    channels_first,
    class_numbers,
    grid_integers,
    number_of_classes,
)
from smoothheads.errors import DataError
from smoothheads.types import Grid

if TYPE_CHECKING:
    import torch

Kind = Literal["image", "label"]
USUAL_COLUMNS: dict[Kind, tuple[str, ...]] = {
    "image": ("image", "img", "images", "pixel_values"),
    "label": ("label", "labels", "fine_label", "class", "target"),
}
PLAIN_SAMPLERS = ("SequentialSampler", "RandomSampler")  # every image once: the order is ours to choose


def from_arrays(
    images: ArrayLike | torch.Tensor,
    labels: ArrayLike | torch.Tensor,
    *,
    classes: int | Sequence[str] | None = None,
    max_value: int = 255,
    name: str = "arrays",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> ArrayDataset:
    """A data set from images [N, H, W], [N, C, H, W] or [N, H, W, C] with 1 or 3 channels and labels [N].

    Pixels are integers 0..max_value, or floats in [0, 1] that lie on that grid. `classes` are names or their
    number, by default max(label) + 1; `mean` and `std` are by default those of the images.
    """
    if not 1 <= max_value <= 255:
        raise DataError("1 <= max_value <= 255", str(max_value), "an image is stored in unsigned bytes")
    pixels = channels_first(grid_integers(as_numpy(images), max_value))
    targets = class_numbers(as_numpy(labels))
    if not len(pixels) or not len(targets):
        raise DataError("at least one image and label", f"{len(pixels)} and {len(targets)}", "add some")
    count = number_of_classes(targets) if classes is None else classes
    names = tuple(map(str, range(count))) if isinstance(count, int) else tuple(count)
    own_mean, own_std = statistics(pixels, max_value)
    info = DataInfo(
        name=name,
        grid=Grid(max_value),
        shape=(pixels.shape[1], pixels.shape[2], pixels.shape[3]),
        class_names=names,
        mean=_per_channel("mean", mean, own_mean),
        std=_per_channel("std", std, own_std),
    )
    return ArrayDataset(pixels, targets, info)


def as_dataset(
    data: Any,
    labels: Any = None,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    **facts: Any,
) -> Dataset:
    """Whatever holds images and labels as a data set; ours are passed on as they are.

    Takes images and labels (two arguments, or a pair), a torch `Dataset` or `DataLoader`, a Hugging Face
    `datasets.Dataset` (its columns are recognised, or named), or a mapping with images and labels. Everything
    is read into memory, once; random transforms are refused. `facts` are those of `from_arrays`.
    """
    if labels is not None:
        return from_arrays(data, labels, **facts)
    if _is_ours(data):
        return data  # type: ignore[no-any-return]
    if hasattr(data, "column_names") and hasattr(data, "features"):
        return _from_columns(data, image_column, label_column, facts)
    if hasattr(data, "keys") and hasattr(data, "__getitem__"):
        keys = list(data.keys())
        images, labels = column_of("image", image_column, keys), column_of("label", label_column, keys)
        return from_arrays(data[images], data[labels], **facts)
    if isinstance(data, (tuple, list)) and len(data) == 2 and np.ndim(as_numpy(data[0])) >= 3:
        return from_arrays(data[0], data[1], **facts)
    return _from_pairs(data, facts)


def as_pixels(images: Any, info: DataInfo) -> NDArray[np.uint8]:
    """Grid integers [C, H, W] of one image, [N, C, H, W] of a batch, for a network that takes `info`.

    Takes integers, floats in [0, 1] on the grid, channels first or last, grey images without a channel axis,
    pictures of Pillow, and the path of an image file. Nothing is resized or rounded.
    """
    if isinstance(images, (str, Path)):
        from smoothheads.data.read import read_image

        return read_image(Path(images), info)
    array = as_numpy(images)
    channels, height, width = info.shape
    if array.shape[-3:] == info.shape and array.ndim in (3, 4):
        arranged = array
    elif array.shape[-3:] == (height, width, channels) and array.ndim in (3, 4):
        arranged = np.moveaxis(array, -1, -3)
    elif channels == 1 and array.shape[-2:] == (height, width) and array.ndim in (2, 3):
        arranged = array[..., None, :, :]
    else:
        size = f"{channels} x {height} x {width}"
        raise DataError(
            f"an image of {size} (channels x height x width) or a batch of them",
            f"shape {tuple(array.shape)}",
            "resize or crop it as in training",
        )
    return np.ascontiguousarray(grid_integers(arranged, info.grid.max_value))


def _is_ours(data: Any) -> bool:
    return isinstance(getattr(data, "info", None), DataInfo) and hasattr(data, "fingerprint")


def _from_columns(
    data: Any, image_column: str | None, label_column: str | None, facts: dict[str, Any]
) -> ArrayDataset:
    """A Hugging Face data set: rows are dicts, class names stand in its features."""
    images = column_of("image", image_column, data.column_names)
    labels = column_of("label", label_column, data.column_names)
    names = getattr(data.features.get(labels), "names", None)
    rows = [(as_numpy(row[images]), row[labels]) for row in data]
    return _stacked(rows, {"classes": names} | facts if names else facts)


def _from_pairs(data: Any, facts: dict[str, Any]) -> ArrayDataset:
    """Something that gives (image, label) pairs or, if it is a loader, batches of them."""
    source = getattr(data, "dataset", None)
    if source is not None and hasattr(data, "batch_size"):
        if type(getattr(data, "sampler", None)).__name__ not in PLAIN_SAMPLERS:
            batches = [(as_numpy(images), as_numpy(labels)) for images, labels in map(_pair, data)]
            images, labels = (np.concatenate(column) for column in zip(*batches, strict=True))
            return from_arrays(images, labels, **facts)
        data = source
    names = getattr(data, "classes", None)  # torchvision's
    if isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names):
        facts = {"classes": list(names)} | facts
    return _stacked([(as_numpy(image), label) for image, label in map(_pair, _items(data))], facts)


def _items(data: Any) -> Iterator[Any]:
    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        _refuse_random(data)
        return (data[position] for position in range(len(data)))
    if isinstance(data, Iterable):
        return iter(data)
    raise DataError(
        "images and labels, or a data set",
        type(data).__name__,
        "give arrays (images, labels), a torch Dataset or DataLoader, or a datasets.Dataset",
    )


def _refuse_random(data: Any) -> None:
    for position in range(min(3, len(data))):
        once, again = (as_numpy(_pair(data[position])[0]) for _ in range(2))
        if once.shape != again.shape or not np.array_equal(once, again):
            got = f"another image {position} at each access"
            raise DataError("a data set without random transforms", got, "augment with augment=True instead")


def _pair(item: Any) -> tuple[Any, Any]:
    if isinstance(item, dict):
        return item[column_of("image", None, list(item))], item[column_of("label", None, list(item))]
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return item[0], item[1]
    raise DataError("items (image, label)", type(item).__name__, "give a data set of pairs")


def _stacked(rows: Sequence[tuple[NDArray[Any], Any]], facts: dict[str, Any]) -> ArrayDataset:
    if not rows:
        raise DataError("at least one image and label", "an empty data set", "add some")
    shapes = {image.shape for image, _ in rows}
    if len(shapes) > 1:
        some = " and ".join(str(shape) for shape in sorted(shapes, key=str)[:2])
        raise DataError("images of one size", some, "resize or crop them to one size first")
    return from_arrays(np.stack([image for image, _ in rows]), [int(label) for _, label in rows], **facts)


def column_of(
    kind: Kind, named: str | None, columns: Sequence[str], *, where: str = "", remedy: str | None = None
) -> str:
    """Which of the columns has the images or labels: the one that was named, else the first usual one."""
    candidates = USUAL_COLUMNS[kind] if named is None else (named,)
    for name in candidates:
        if name in columns:
            return name
    expected = f"the {kind} column {' or '.join(map(repr, candidates))}{where}"
    raise DataError(expected, ", ".join(map(str, columns)), remedy or f"name it: {kind}_column=...")


def _per_channel(name: str, given: Sequence[float] | None, own: tuple[float, ...]) -> tuple[float, ...]:
    if given is None:
        return own
    if len(given) != len(own):
        raise DataError(
            f"{len(own)} values as {name}, one per channel", str(len(given)), "give one per channel"
        )
    return tuple(float(value) for value in given)
