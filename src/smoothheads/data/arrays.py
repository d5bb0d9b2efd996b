"""Images that live in memory as unsigned bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.base import DataInfo
from smoothheads.data.check import labels_within
from smoothheads.data.downscale import average, downscaled_info
from smoothheads.errors import DataError
from smoothheads.types import Pixels


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
        head = f"arrays q={self.info.grid.max_value} classes={self.info.classes} shape={self.images.shape}"
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


def statistics(images: NDArray[np.uint8], max_value: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel of pixels in [0, 1]; a constant channel gets 1 as deviation.

    From the histogram of the grid values, hence exact integer sums.
    """
    values = np.arange(max_value + 1) / max_value
    means, stds = [], []
    for channel in range(images.shape[1]):
        counts = np.bincount(images[:, channel].reshape(-1), minlength=max_value + 1)
        mean = float(counts @ values / counts.sum())
        std = float(np.sqrt(counts @ (values - mean) ** 2 / counts.sum()))
        means.append(mean)
        stds.append(std if std > 1e-9 else 1.0)
    return tuple(means), tuple(stds)


def _check_images(images: NDArray[np.uint8], info: DataInfo) -> None:
    remedy = "see from_arrays, which converts"
    if images.dtype != np.uint8:
        raise DataError(f"images of {info.name} as uint8", f"dtype {images.dtype}", remedy)
    if images.shape[1:] != info.shape:
        raise DataError(f"images of {info.name} of shape {info.shape}", f"{images.shape[1:]}", remedy)
    if info.grid.max_value < 255 and images.size and images.max() > info.grid.max_value:
        raise DataError(f"images of {info.name} in 0..{info.grid.max_value}", f"{images.max()}", remedy)


def _check_column(name: str, values: NDArray[np.int64], count: int, where: str) -> None:
    if values.dtype != np.int64 or values.shape != (count,):
        got = f"{values.dtype} of shape {values.shape}"
        raise DataError(f"{count} {name} (int64) for {count} images of {where}", got, "give one per image")


def _read_only(array: NDArray[Any]) -> NDArray[Any]:
    view = array.view()
    view.flags.writeable = False
    return view
