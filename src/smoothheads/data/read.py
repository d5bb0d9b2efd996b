"""One image file as a network's input."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from smoothheads.data.base import DataInfo
from smoothheads.data.images import decode, pixels
from smoothheads.errors import DataError
from smoothheads.types import Pixels


def read_image(path: Path, info: DataInfo) -> Pixels:
    """Grid integers of exactly the size that `info` says; nothing is resized behind the user's back.

    On a grid coarser than 8 bits the grey levels are rounded to it, and distances count from there.
    """
    if not path.is_file():
        raise DataError(f"an image file {path}", "none", "check the path")
    image = pixels(decode(path, str(path)))
    channels, height, width = info.shape
    if image.shape[1:] != (height, width):
        raise DataError(
            f"{path} of {width}x{height} pixels",
            f"{image.shape[2]}x{image.shape[1]}",
            "crop or resize it as in training",
        )
    if channels == 1:
        if not (image == image[:1]).all():
            raise DataError(f"a grey image in {path}", "a colour image", "convert it to grey first")
        image = image[:1]
    if info.grid.q == 255:
        return image
    # Half up, in integers: round(m * q / 255).
    return ((image.astype(np.int64) * 2 * info.grid.q + 255) // 510).astype(np.uint8)
