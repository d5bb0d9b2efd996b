"""Random crops and flips: on whole batches of small images, or as a box for one large image."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
ATTEMPTS = 10


def crop_flip(
    images: NDArray[np.uint8], generator: torch.Generator, *, part: tuple[int, slice] | None = None
) -> NDArray[np.uint8]:
    """Pads [N, C, H, W] with zeros by an eighth of the side, crops each image at random, mirrors half.

    `part` (batch, place) says that the images are those at `place` in a batch of that many; they come out as
    they would with the others beside them.
    """
    count, channels, height, width = images.shape
    batch, place = part or (count, slice(None))
    pad_y, pad_x = height // 8, width // 8
    padded = np.zeros((count, channels, height + 2 * pad_y, width + 2 * pad_x), np.uint8)
    padded[:, :, pad_y : pad_y + height, pad_x : pad_x + width] = images
    top = torch.randint(2 * pad_y + 1, (batch,), generator=generator).numpy()[place]
    left = torch.randint(2 * pad_x + 1, (batch,), generator=generator).numpy()[place]
    mirrored = torch.randint(2, (batch,), generator=generator).numpy().astype(bool)[place]
    windows = sliding_window_view(padded, (height, width), axis=(2, 3))
    cropped: NDArray[np.uint8] = windows[np.arange(count), :, top, left]
    cropped[mirrored] = cropped[mirrored, :, :, ::-1]
    return cropped


def random_resized_box(width: int, height: int, generator: torch.Generator) -> tuple[int, int, int, int]:
    """Left, top, right, bottom of a part with 8 % to 100 % of the area and an aspect ratio of 3/4 to 4/3.

    After ten parts that do not fit, the central one with the nearest allowed ratio.
    """
    draws = torch.rand((ATTEMPTS, 2), generator=generator, dtype=torch.float64).tolist()
    for scale, aspect in draws:
        area = (SCALE[0] + scale * (SCALE[1] - SCALE[0])) * width * height
        ratio = math.exp(math.log(RATIO[0]) + aspect * (math.log(RATIO[1]) - math.log(RATIO[0])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left = int(torch.randint(width - wide + 1, (), generator=generator))
            top = int(torch.randint(height - high + 1, (), generator=generator))
            return left, top, left + wide, top + high
    wide, high = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    left, top = (width - wide) // 2, (height - high) // 2
    return left, top, left + wide, top + high
