"""Decoding of single image files: 8-bit pixels or a clear error."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smoothheads.data.check import damaged
from smoothheads.errors import DataError

FORMATS = ("JPEG", "PNG", "BMP", "PPM", "WEBP")  # Pillow knows others, some of which start other programs
EIGHT_BIT = ("L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")


def decode(data: bytes | Path, source: str) -> Image.Image:
    """The whole picture as 8-bit RGB; truncated, foreign or deeper than 8 bits is an error."""
    try:
        rgb: Image.Image
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=FORMATS) as picture:
            mode = picture.mode
            picture.load()
            rgb = picture if mode == "RGB" else picture.convert("RGB")
    except Exception as error:  # Pillow's decoders raise whatever they stumble over
        raise damaged(source, "image", error) from error
    if mode not in EIGHT_BIT:
        raise DataError(f"8-bit pixels in {source}", f"mode {mode}", "convert the image to 8-bit RGB")
    return rgb


def pixels(picture: Image.Image) -> NDArray[np.uint8]:
    """[3, H, W], contiguous."""
    return np.ascontiguousarray(np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1))
