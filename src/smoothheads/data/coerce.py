"""Turns what users have into data sets and grid integers: arrays, tensors, pictures, other libraries' sets.

Values become grid integers exactly, or an error says how to quantise them; nothing is rounded silently.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothheads.data.arrays import ArrayDataset, statistics
from smoothheads.data.base import DataInfo, Dataset
from smoothheads.data.images import picture_array
from smoothheads.errors import DataError
from smoothheads.types import Grid

if TYPE_CHECKING:
    import torch

Kind = Literal["image", "label"]
USUAL_COLUMNS: dict[Kind, tuple[str, ...]] = {
    "image": ("image", "images", "img"),
    "label": ("label", "labels", "fine_label"),
}
PLAIN_SAMPLERS = ("SequentialSampler", "RandomSampler")  # every image once; the order does not matter here
CHANNELS = (1, 3)  # an axis of this length may be the channel axis
OFF_GRID = 1e-3  # of a grid step: float32 pixels m / 255 are within 2e-5 of it, others are mostly far off


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
    """Returns a data set made of images and labels.

    Args:
        images: [N, H, W], [N, C, H, W] or [N, H, W, C] with 1 or 3 channels, as integers 0..max_value or as
            floats in [0, 1] on that grid.
        labels: class numbers [N] from 0.
        classes: the names of the classes or their number, by default max(label) + 1.
        max_value: the largest grid integer, called q in the documents.
        name: the name of the data set.
        mean: the mean per channel of pixels in [0, 1], by default that of the images.
        std: the standard deviation per channel, by default that of the images.
    """
    if not 1 <= max_value <= 255:
        raise DataError(f"max_value must be in 1..255, not {max_value}: a pixel is stored in one byte.")
    images, labels = as_numpy(images), as_numpy(labels)
    if not images.size or not labels.size:
        raise DataError(
            "A data set needs images and labels, and these have the shapes "
            f"{images.shape} and {labels.shape}."
        )
    # Bring both to one form: grid integers [N, C, H, W] and class numbers [N].
    pixels, targets = channels_first(grid_integers(images, max_value)), _class_numbers(labels)
    if pixels.max() <= 1 < max_value:
        warnings.warn(
            f"All pixels of {name} are 0 or 1 of {max_value}, hence nearly black; if they are masks, "
            "set max_value=1.",
            stacklevel=2,
        )
    # Classes are numbered unless they have names. Every class from 1 on and none with number 0: most likely
    # they are counted from 1.
    present = np.unique(targets)
    if classes is None and len(present) > 1 and present[0] == 1 and present[-1] == len(present):
        raise DataError(
            f"The labels are 1..{present[-1]}, every one of them, and must be counted from 0; subtract 1, or "
            f"set classes={present[-1] + 1} if there is a class 0 without images."
        )
    count = int(present[-1]) + 1 if classes is None else classes
    # Mean and standard deviation are those of the images, unless they are given.
    names = tuple(map(str, range(count))) if isinstance(count, int) else tuple(count)
    own_mean, own_std = statistics(pixels, max_value)
    facts = {
        "mean": own_mean if mean is None else tuple(map(float, mean)),
        "std": own_std if std is None else tuple(map(float, std)),
    }
    for key, values in facts.items():
        if len(values) != pixels.shape[1]:
            raise DataError(f"{key} needs one value per channel, hence {pixels.shape[1]}, not {len(values)}.")
    shape = (pixels.shape[1], pixels.shape[2], pixels.shape[3])
    return ArrayDataset(pixels, targets, DataInfo(name, Grid(max_value), shape, names, **facts))


def as_dataset(
    data: Any,
    labels: Any = None,
    *,
    image_column: str | None = None,
    label_column: str | None = None,
    **facts: Any,
) -> Dataset:
    """Returns a data set of whatever holds images and labels; ours are returned as they are.

    Everything is read into memory, once; random transforms are refused.

    Args:
        data: images (with `labels`) or a pair of both, a torch `Dataset` or a `DataLoader` of one, a Hugging
            Face `datasets.Dataset`, or a mapping with images and labels.
        labels: the labels, if `data` is images alone.
        image_column: which column or key has the images, where the name does not tell.
        label_column: which column or key has the labels.
        facts: arguments of `from_arrays`.
    """
    if labels is not None:
        return from_arrays(data, labels, **facts)
    if isinstance(getattr(data, "info", None), DataInfo) and hasattr(data, "fingerprint"):
        return data  # type: ignore[no-any-return]
    # A mapping, such as a dict or an open .npz file.
    if hasattr(data, "keys") and hasattr(data, "__getitem__"):
        return from_arrays(*_of_columns(data, image_column, label_column), **facts)
    # A pair of arrays; a list of two pairs (image, label) has smaller elements.
    if isinstance(data, (tuple, list)) and len(data) == 2 and np.ndim(as_numpy(data[0])) >= 3:
        return from_arrays(data[0], data[1], **facts)
    # Of a loader the data set is taken: its order and batches do not matter here, its augmentation would.
    if hasattr(data, "dataset") and hasattr(data, "batch_size"):
        sampler = type(getattr(data, "sampler", None)).__name__
        if sampler not in PLAIN_SAMPLERS:
            raise DataError(
                f"A DataLoader with a {sampler} does not yield every image once; pass the data set itself, "
                "or a torch.utils.data.Subset of it."
            )
        data = data.dataset
    # A data set of torch or Hugging Face. Those of torchvision know the names of their classes, features of
    # Hugging Face the names of a column's values.
    names = getattr(data, "classes", None)
    if hasattr(data, "column_names") and hasattr(data, "features"):
        label_column = column_of("label", label_column, data.column_names)
        names = getattr(data.features.get(label_column), "names", None)
    if isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names):
        facts = {"classes": list(names)} | facts
    pairs = list(_pairs(data, image_column, label_column))
    return from_arrays([image for image, _ in pairs], [label for _, label in pairs], **facts)


def as_pixels(images: Any, info: DataInfo) -> NDArray[np.uint8]:
    """Returns grid integers [C, H, W] of one image, [N, C, H, W] of a batch. Nothing is resized or rounded.

    Args:
        images: integers or floats in [0, 1] on the grid, channels first or last, grey images without a
            channel axis, pictures of Pillow, or the path of an image file.
        info: the facts about the images that the network takes.
    """
    if isinstance(images, (str, Path)):
        from smoothheads.data.inputs import read_image

        return read_image(Path(images), info)
    # Channels first, channels last, or grey images without a channel axis: one image or a batch of them.
    array = as_numpy(images)
    channels, height, width = info.shape
    if array.shape[-3:] == info.shape and array.ndim in (3, 4):
        arranged = array
    elif array.shape[-3:] == (height, width, channels) and array.ndim in (3, 4):
        arranged = np.moveaxis(array, -1, -3)
    elif channels == 1 and array.shape[-2:] == (height, width) and array.ndim in (2, 3):
        arranged = array[..., None, :, :]
    else:
        remedy = "resize or crop it as in training"
        if (height, width) in (array.shape[-2:], array.shape[-3:-1]):
            remedy = f"the channels differ, so convert it to {'grey' if channels == 1 else 'RGB'}"
        raise DataError(
            f"The network takes one image or a batch of {channels}x{height}x{width} (channels, height, "
            f"width), not an array of shape {tuple(array.shape)}; {remedy}."
        )
    return np.ascontiguousarray(grid_integers(arranged, info.grid.max_value))


def as_numpy(values: Any) -> NDArray[Any]:
    """Returns an array of a tensor, a picture, an array or nested lists; a ragged list is refused."""
    # A tensor; NumPy has no bfloat16.
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if "bfloat16" in str(getattr(values, "dtype", "")):
            values = values.float()
    elif hasattr(values, "getbands"):  # a picture of Pillow
        return picture_array(values)
    elif isinstance(values, (list, tuple)) and values and hasattr(values[0], "getbands"):
        values = [as_numpy(picture) for picture in values]
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"The images are not of one size ({error}); resize or crop them first.") from None


def grid_integers(images: NDArray[Any], max_value: int) -> NDArray[np.uint8]:
    """Returns integers 0..max_value as they are, and floats if they are m / max_value or whole numbers."""
    if images.dtype.kind not in "uif":
        raise DataError(
            f"Images must be integers in 0..{max_value} or floats in [0, 1], not {images.dtype}; "
            f"convert them: {_quantise(max_value)}."
        )
    if not images.size:
        return images.astype(np.uint8)
    if images.dtype.kind == "f" and not np.isfinite(images).all():
        raise DataError("The images have pixels that are NaN or infinite; repair the array.")
    low, high = images.min(), images.max()
    # Floats in [0, 1] are multiples of 1 / max_value; everything else must be whole numbers already.
    exact = images
    if images.dtype.kind == "f":
        exact = images.astype(np.float64)
        if low >= 0 and high <= 1:
            exact = exact * max_value
        elif (exact != np.rint(exact)).any():
            raise DataError(
                f"The pixels have values in {low:g}..{high:g}, which are neither in [0, 1] nor integers in "
                f"0..{max_value}; undo a normalisation (it is a layer inside the network), then "
                f"{_quantise(max_value)}."
            )
        # float32 pixels m / q are off by rounding only; anything more is another image than the nearest one.
        off = np.abs(exact - np.rint(exact)).max()
        if off > OFF_GRID:
            raise DataError(
                f"A pixel is {off:.2g} of a step off the grid m / {max_value}; quantise the images: "
                f"{_quantise(max_value)}."
            )
        exact = np.rint(exact)
    # Integers must lie on the grid.
    if exact.min() < 0 or exact.max() > max_value:
        raise DataError(
            f"The images have values in {low:g}..{high:g} instead of integers in 0..{max_value}; rescale "
            "them or state their max_value."
        )
    return exact.astype(np.uint8)


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """Returns [N, C, H, W] from [N, H, W], [N, C, H, W] or [N, H, W, C]."""
    if images.ndim == 3:
        return images[:, None]
    forms = "[N, H, W], [N, C, H, W] or [N, H, W, C] with 1 or 3 channels"
    if images.ndim != 4:
        raise DataError(f"Images must be {forms}, not of shape {images.shape}.")
    # Exactly one end may look like channels, or the layout would be a guess.
    first, last = images.shape[1] in CHANNELS, images.shape[3] in CHANNELS
    if first == last:
        which = "both ends" if first else "neither end"
        raise DataError(
            f"Images must be {forms}, and in the shape {images.shape} {which} may be channels; "
            "build an ArrayDataset from [N, C, H, W] bytes."
        )
    return images if first else np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def column_of(kind: Kind, name: str | None, columns: Sequence[str], remedy: str | None = None) -> str:
    """Returns which column has the images or labels: `name`, else the only one with a usual name.

    Args:
        name: the column that the user named, if any.
        remedy: how the user can name the column.
    """
    candidates = USUAL_COLUMNS[kind] if name is None else (name,)
    present = [candidate for candidate in candidates if candidate in columns]
    if len(present) == 1:
        return present[0]
    problem = f"may be {' or '.join(map(repr, present))}" if present else f"is not {' or '.join(candidates)}"
    raise DataError(
        f"The {kind} column {problem} (columns: {', '.join(map(str, columns))}); "
        f"{remedy or f'name it: {kind}_column=...'}."
    )


def _of_columns(data: Any, image: str | None, label: str | None) -> tuple[Any, Any]:
    """Returns images and labels of a mapping, or image and label of a row."""
    keys = list(data.keys())
    return data[column_of("image", image, keys)], data[column_of("label", label, keys)]


def _pairs(data: Any, image: str | None, label: str | None) -> Iterator[tuple[NDArray[Any], Any]]:
    """Yields image and label of every item of a data set; the columns matter where items are dicts."""

    def pair(item: Any) -> tuple[NDArray[Any], Any]:
        if isinstance(item, dict):
            item = _of_columns(item, image, label)
        if not isinstance(item, (tuple, list)) or len(item) != 2:
            raise DataError(
                f"The items of a data set must be pairs (image, label), not {type(item).__name__}: pass "
                "images and labels, as in (images, labels)."
            )
        return as_numpy(item[0]), item[1]

    if hasattr(data, "__getitem__") and hasattr(data, "__len__"):
        # Two accesses to the same image must agree, or the data set augments at random.
        for position in range(min(3, len(data))):
            if not np.array_equal(pair(data[position])[0], pair(data[position])[0]):
                raise DataError(
                    f"Image {position} of the data set differs at each access; remove the random transforms "
                    "and augment with augment=True instead."
                )
        data = map(data.__getitem__, range(len(data)))
    if not isinstance(data, Iterable):
        raise DataError(
            f"{type(data).__name__} is not a data set; pass arrays (images, labels), a torch Dataset or a "
            "datasets.Dataset."
        )
    return map(pair, data)


def _class_numbers(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Returns labels [N] or [N, 1] of whole numbers as [N]; anything else is refused."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    # Whole numbers that were stored as floats are class numbers all the same.
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and (labels == np.rint(labels)).all():
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "ui" or labels.ndim != 1:
        raise DataError(
            "Labels must be integers [N] or [N, 1], the number of each image's class, not "
            f"{labels.dtype} of shape {labels.shape}."
        )
    return labels.astype(np.int64)


def _quantise(max_value: int) -> str:
    """Returns the line of Python that brings pixels onto the grid."""
    return f"np.rint(x * {max_value}).astype(np.uint8) for x in [0, 1]"
