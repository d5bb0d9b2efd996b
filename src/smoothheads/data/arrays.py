"""Images that live in memory as unsigned bytes, and the way in for a user's own arrays."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from smoothheads.data.base import DataInfo
from smoothheads.data.check import labels_within
from smoothheads.data.downscale import average, downscaled_info
from smoothheads.errors import DataError
from smoothheads.types import Grid, Pixels

if TYPE_CHECKING:
    import torch

CHANNELS = (1, 3)  # an axis of this length may be the channel axis


@dataclass(frozen=True, eq=False)
class ArrayDataset:
    """A split in memory. The arrays are checked on construction and cannot be written to through it."""

    images: NDArray[np.uint8]
    """Grid integers [N, C, H, W]."""
    labels: NDArray[np.int64]
    info: DataInfo
    indices: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Positions in the original split; left out: 0..N-1."""

    def __post_init__(self) -> None:
        _check_images(self.images, self.info)
        if not self.indices.size:
            object.__setattr__(self, "indices", np.arange(len(self.images), dtype=np.int64))
        for name in ("labels", "indices"):
            _check_column(name, getattr(self, name), len(self.images), self.info.name)
        labels_within(self.labels, self.info.classes, self.info.name)
        for name in ("images", "labels", "indices"):
            object.__setattr__(self, name, _read_only(getattr(self, name)))

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of q, shape, images, labels and indices; the file format they came from does not matter."""
        head = f"arrays q={self.info.grid.q} classes={self.info.classes} shape={self.images.shape}"
        digest = hashlib.sha256(head.encode())
        for array in (self.images, self.labels.astype("<i8"), self.indices.astype("<i8")):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def image(self, position: int) -> Pixels:
        image: Pixels = self.images[position].copy()
        return image

    def take(self, positions: NDArray[np.int64]) -> ArrayDataset:
        return replace(
            self,
            images=self.images[positions],
            labels=self.labels[positions],
            indices=self.indices[positions],
        )

    def downscaled(self, factor: int) -> ArrayDataset:
        """Square groups of pixels averaged on the grid; the factor must divide both sides."""
        info = downscaled_info(self.info, factor)
        return replace(self, images=average(self.images, factor), info=info)

    def __len__(self) -> int:
        return len(self.images)


def from_arrays(
    images: ArrayLike | torch.Tensor,
    labels: ArrayLike | torch.Tensor,
    *,
    classes: int | Sequence[str] | None = None,
    q: int = 255,
    name: str = "arrays",
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> ArrayDataset:
    """A data set from integers 0..q of the form [N, H, W], [N, C, H, W] or [N, H, W, C] with 1 or 3 channels.

    `classes` are names or their number, by default max(label) + 1; `mean` and `std` are by default those of
    the images.
    """
    if not 1 <= q <= 255:
        raise DataError("1 <= q <= 255", str(q), "an image is stored in unsigned bytes")
    pixels = _channels_first(_grid_integers(_as_numpy(images), q))
    targets = _as_labels(_as_numpy(labels))
    if not len(pixels) or not len(targets):
        raise DataError("at least one image and label", f"{len(pixels)} and {len(targets)}", "add some")
    count = int(targets.max()) + 1 if classes is None else classes
    names = tuple(map(str, range(count))) if isinstance(count, int) else tuple(count)
    own_mean, own_std = statistics(pixels, q)
    info = DataInfo(
        name=name,
        grid=Grid(q),
        shape=(pixels.shape[1], pixels.shape[2], pixels.shape[3]),
        class_names=names,
        mean=_per_channel("mean", mean, own_mean),
        std=_per_channel("std", std, own_std),
    )
    return ArrayDataset(pixels, targets, info)


def statistics(images: NDArray[np.uint8], q: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels in [0, 1]; a constant channel gets 1 as deviation.

    From the histogram of the grid values, hence exact integer sums.
    """
    values = np.arange(q + 1) / q
    means, stds = [], []
    for channel in range(images.shape[1]):
        counts = np.bincount(images[:, channel].reshape(-1), minlength=q + 1)
        mean = float(counts @ values / counts.sum())
        std = float(np.sqrt(counts @ (values - mean) ** 2 / counts.sum()))
        means.append(mean)
        stds.append(std if std > 1e-9 else 1.0)
    return tuple(means), tuple(stds)


def _as_numpy(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu() if hasattr(values, "detach") else values)


def _grid_integers(images: NDArray[Any], q: int) -> NDArray[np.uint8]:
    if images.dtype.kind not in "ui":
        remedy = f"convert pixels x in [0, 1] with round(x * q), e.g. np.rint(x * {q}).astype(np.uint8)"
        raise DataError(f"images of integers 0..{q}", f"dtype {images.dtype}", remedy)
    if images.size and (images.min() < 0 or images.max() > q):
        raise DataError(
            f"images of integers 0..{q}",
            f"values {images.min()}..{images.max()}",
            "rescale them, or give their q",
        )
    return images.astype(np.uint8)


def _channels_first(images: NDArray[np.uint8]) -> NDArray[np.uint8]:
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


def _as_labels(labels: NDArray[Any]) -> NDArray[np.int64]:
    if labels.dtype.kind not in "ui" or labels.ndim != 1:
        got = f"dtype {labels.dtype} and shape {labels.shape}"
        raise DataError("integer labels [N]", got, "give the number of each image's class")
    return labels.astype(np.int64)


def _per_channel(name: str, given: Sequence[float] | None, own: tuple[float, ...]) -> tuple[float, ...]:
    if given is None:
        return own
    if len(given) != len(own):
        raise DataError(
            f"{len(own)} values as {name}, one per channel", str(len(given)), "give one per channel"
        )
    return tuple(float(value) for value in given)


def _check_images(images: NDArray[np.uint8], info: DataInfo) -> None:
    remedy = "see from_arrays, which converts"
    if images.dtype != np.uint8:
        raise DataError(f"images of {info.name} as uint8", f"dtype {images.dtype}", remedy)
    if images.shape[1:] != info.shape:
        raise DataError(f"images of {info.name} of shape {info.shape}", f"{images.shape[1:]}", remedy)
    if info.grid.q < 255 and images.size and images.max() > info.grid.q:
        raise DataError(f"images of {info.name} in 0..{info.grid.q}", f"{images.max()}", remedy)


def _check_column(name: str, values: NDArray[np.int64], count: int, where: str) -> None:
    if values.dtype != np.int64 or values.shape != (count,):
        got = f"{values.dtype} of shape {values.shape}"
        raise DataError(f"{count} {name} (int64) for {count} images of {where}", got, "give one per image")


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
