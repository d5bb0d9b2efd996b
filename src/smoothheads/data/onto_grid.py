"""What a user has, as grid integers: exactly, or an error that says how to quantise."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothheads.errors import DataError

CHANNELS = (1, 3)  # an axis of this length may be the channel axis
OFF_GRID = 1e-3  # of a grid step: float32 pixels m / 255 are within 2e-5 of it, others are mostly far off


def as_numpy(values: Any) -> NDArray[Any]:
    """An array of a tensor, a picture, an array or nested lists; a ragged list is refused."""
    if hasattr(values, "detach"):
        values = values.detach().cpu()
        if "bfloat16" in str(getattr(values, "dtype", "")):
            values = values.float()
    elif hasattr(values, "getbands"):
        from smoothheads.data.images import picture_array

        return picture_array(values)
    elif isinstance(values, (list, tuple)) and values and hasattr(values[0], "getbands"):
        values = [as_numpy(picture) for picture in values]
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError("images of one size", str(error), "resize or crop them to one size first") from None


def grid_integers(images: NDArray[Any], max_value: int) -> NDArray[np.uint8]:
    """Integers 0..max_value as they are, floats if they are m / max_value in [0, 1] or whole numbers."""
    if images.dtype.kind == "f":
        return _from_floats(images, max_value)
    if images.dtype.kind not in "ui":
        got = f"dtype {images.dtype}"
        raise DataError(f"images of integers 0..{max_value}", got, f"convert them: {_quantise(max_value)}")
    if images.size and (images.min() < 0 or images.max() > max_value):
        raise DataError(
            f"images of integers 0..{max_value}",
            f"values {images.min()}..{images.max()}",
            "rescale them, or give their max_value",
        )
    return images.astype(np.uint8)


def channels_first(images: NDArray[Any]) -> NDArray[Any]:
    """[N, C, H, W] from [N, H, W], [N, C, H, W] or [N, H, W, C]."""
    if images.ndim == 3:
        return images[:, None]
    forms = "[N, H, W], [N, C, H, W] or [N, H, W, C] with 1 or 3 channels"
    if images.ndim != 4:
        raise DataError(f"images {forms}", f"shape {images.shape}", "reshape the array")
    first, last = images.shape[1] in CHANNELS, images.shape[3] in CHANNELS
    if first == last:
        got = f"shape {images.shape}, where " + ("both ends" if first else "neither end") + " may be channels"
        raise DataError(f"images {forms}", got, "or build an ArrayDataset from [N, C, H, W] bytes")
    return images if first else np.ascontiguousarray(images.transpose(0, 3, 1, 2))


def class_numbers(labels: NDArray[Any]) -> NDArray[np.int64]:
    """Labels [N] or [N, 1] of whole numbers; anything else is refused."""
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.dtype.kind == "f" and np.isfinite(labels).all() and (labels == np.rint(labels)).all():
        labels = labels.astype(np.int64)
    if labels.dtype.kind not in "ui" or labels.ndim != 1:
        got = f"dtype {labels.dtype} and shape {labels.shape}"
        raise DataError("integer labels [N] or [N, 1]", got, "give the number of each image's class")
    return labels.astype(np.int64)


def number_of_classes(labels: NDArray[np.int64]) -> int:
    """max(label) + 1, unless the labels look as if they were counted from 1."""
    present = np.unique(labels)
    if len(present) > 1 and present[0] == 1 and present[-1] == len(present):
        got = f"1..{present[-1]}, every one of them"
        remedy = f"subtract 1, or give classes={present[-1] + 1} if there is a class 0 without images"
        raise DataError("labels counted from 0", got, remedy)
    return int(present[-1]) + 1


def _from_floats(images: NDArray[Any], max_value: int) -> NDArray[np.uint8]:
    if not np.isfinite(images).all():
        raise DataError("finite pixels", "NaN or infinity among them", "repair the array")
    low, high = (float(images.min()), float(images.max())) if images.size else (0.0, 0.0)
    exact = images.astype(np.float64)
    if low >= 0 and high <= 1:
        exact = exact * max_value
    elif low < 0 or high > max_value or not (exact == np.rint(exact)).all():
        got = f"values {low:g}..{high:g}"
        remedy = f"undo a normalisation (it is a layer inside the network), then {_quantise(max_value)}"
        raise DataError(f"pixels in [0, 1] or integers 0..{max_value}", got, remedy)
    off = np.abs(exact - np.rint(exact)).max(initial=0.0)
    if off > OFF_GRID:
        got = f"one that is {off:.2g} of a step off"
        raise DataError(f"pixels on the grid m / {max_value}", got, f"quantise them: {_quantise(max_value)}")
    return np.rint(exact).astype(np.uint8)


def _quantise(max_value: int) -> str:
    return f"np.rint(x * {max_value}).astype(np.uint8) for x in [0, 1]"
