"""Smaller images by averaging square groups of pixels, in integers, so that they stay on the grid."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from smoothheads.data.base import DataInfo
from smoothheads.errors import DataError


def average(images: NDArray[np.uint8], factor: int) -> NDArray[np.uint8]:
    """[..., H, W] to [..., H / factor, W / factor]; the mean of each group, halves rounded up."""
    places = [(row, column) for row in range(factor) for column in range(factor)]
    total = np.zeros(images[..., ::factor, ::factor].shape, np.uint32)
    for row, column in places:  # of every group, which is far quicker than group by group
        total += images[..., row::factor, column::factor]
    area = len(places)
    mean: NDArray[np.uint8] = ((2 * total + area) // (2 * area)).astype(np.uint8)
    return mean


def downscaled_info(info: DataInfo, factor: int) -> DataInfo:
    """The facts of the averaged images: the factor is part of the name; mean and deviation stay."""
    channels, height, width = info.shape
    if height % factor or width % factor:
        got = f"{height}x{width} and downscale {factor}"
        raise DataError(f"sides of {info.name} that downscale divides", got, "choose a divisor of both sides")
    shape = (channels, height // factor, width // factor)
    return replace(info, name=f"{info.name}-downscale{factor}", shape=shape)
