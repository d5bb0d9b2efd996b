"""Images that live in memory as unsigned bytes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.base import DataInfo
from smoothheads.errors import DataError
from smoothheads.types import Pixels


@dataclass(frozen=True, eq=False)
class ArrayDataset:
    """A split in memory. The arrays are checked on construction and become read-only."""

    images: NDArray[np.uint8]
    """Grid integers [N, C, H, W]."""
    labels: NDArray[np.int64]
    info: DataInfo
    indices: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    """Positions in the original split, by default 0..N-1."""

    def __post_init__(self) -> None:
        where, count, limit = self.info.name, len(self.images), self.info.grid.max_value
        if self.images.dtype != np.uint8 or self.images.shape[1:] != self.info.shape:
            raise DataError(
                f"The images of {where} must be uint8 of shape [N, {', '.join(map(str, self.info.shape))}], "
                f"not {self.images.dtype} of shape {self.images.shape}; from_arrays converts other forms."
            )
        # A byte holds at most 255, so that only coarser grids have to be checked.
        if limit < 255 and self.images.size and self.images.max() > limit:
            raise DataError(f"The images of {where} must be in 0..{limit}, and one has {self.images.max()}.")
        if not self.indices.size:
            object.__setattr__(self, "indices", np.arange(count, dtype=np.int64))
        for name in ("labels", "indices"):
            values = getattr(self, name)
            if values.dtype != np.int64 or values.shape != (count,):
                raise DataError(
                    f"{where} has {count} images and needs {count} {name} (int64), not {values.dtype} of "
                    f"shape {values.shape}."
                )
        check_labels(self.labels, self.info)
        # A view is read-only without taking the caller's array away from him.
        for name in ("images", "labels", "indices"):
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of grid, shape, images, labels and indices; the file format they came from does not
        matter."""
        head = f"arrays q={self.info.grid.max_value} classes={self.info.classes} shape={self.images.shape}"
        digest = hashlib.sha256(head.encode())
        for array in (self.images, self.labels.astype("<i8"), self.indices.astype("<i8")):
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()

    def image(self, position: int) -> Pixels:
        image: Pixels = self.images[position].copy()
        return image

    def take(self, positions: NDArray[np.int64]) -> ArrayDataset:
        """Returns the images at these positions."""
        parts: dict[str, Any] = {
            name: getattr(self, name)[positions] for name in ("images", "labels", "indices")
        }
        return replace(self, **parts)

    def downscaled(self, factor: int) -> ArrayDataset:
        """Averages square groups of pixels on the grid; the factor must divide both sides."""
        info = downscaled_info(self.info, factor)
        return replace(self, images=average(self.images, factor), info=info)

    def __len__(self) -> int:
        return len(self.images)


def check_labels(labels: NDArray[np.int64], info: DataInfo) -> None:
    """Raises DataError for a label that is none of the classes."""
    outside = np.flatnonzero((labels < 0) | (labels >= info.classes))
    if outside.size:
        first = int(outside[0])
        raise DataError(
            f"The label at position {first} of {info.name} is {int(labels[first])}, and {outside.size} in "
            f"all are outside 0..{info.classes - 1}; correct the labels or name all classes."
        )


def statistics(images: NDArray[np.uint8], max_value: int) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Returns mean and standard deviation per channel of pixels in [0, 1]; 1 for a constant channel.

    They are computed from the histogram of the grid values, hence from exact integer sums.
    """
    values = np.arange(max_value + 1) / max_value
    means, stds = [], []
    for channel in range(images.shape[1]):
        # Histogram, mean, and mean square distance from it.
        counts = np.bincount(images[:, channel].reshape(-1), minlength=max_value + 1)
        mean = float(counts @ values / counts.sum())
        std = float(np.sqrt(counts @ (values - mean) ** 2 / counts.sum()))
        means.append(mean)
        # A constant channel has nothing to be divided by.
        stds.append(std if std > 1e-9 else 1.0)
    return tuple(means), tuple(stds)


def average(images: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """Averages groups of factor x factor pixels in integers, halves rounded up, so that they stay on the
    grid: [..., H, W] becomes [..., H / factor, W / factor]."""
    places = [(row, column) for row in range(factor) for column in range(factor)]
    total = np.zeros(images[..., ::factor, ::factor].shape, np.uint32)
    # One place of all groups at a time, which is far quicker than group by group.
    for row, column in places:
        total += images[..., row::factor, column::factor]
    # Divide by the area and round halves up: (2 total + area) // (2 area).
    area = len(places)
    mean: NDArray[np.uint8] = ((2 * total + area) // (2 * area)).astype(np.uint8)
    return mean


def downscaled_info(info: DataInfo, factor: int) -> DataInfo:
    """Returns the facts of averaged images: the factor is part of the name, mean and deviation stay."""
    channels, height, width = info.shape
    if height % factor or width % factor:
        raise DataError(
            f"data.downscale {factor} does not divide the {height}x{width} images of {info.name}; "
            "choose a divisor of both sides."
        )
    shape = (channels, height // factor, width // factor)
    return replace(info, name=f"{info.name}-downscale{factor}", shape=shape)
