"""Images that came over the net: decoded within limits, and put on the network's grid."""

from __future__ import annotations

import base64
import binascii
import io
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image, ImageOps

from smoothheads.data import images as pictures
from smoothheads.errors import DataError
from smoothheads.types import Grid, Pixels

if TYPE_CHECKING:
    from smoothheads.data import DataInfo


def decode(data: bytes, info: DataInfo, *, name: str, limit: int, resize: bool = False) -> Pixels:
    """Grid integers [C, H, W] of the size that the network takes.

    With `resize` any picture is made to fit: upright, cut to the shape, scaled, and grey if need be. The size
    is read from the file's head, so that nothing large is unpacked. Raises DataError.
    """
    rgb = pictures.decode(data, name, strict=not resize, max_pixels=limit)
    channels, height, width = info.shape
    if resize:
        rgb = ImageOps.fit(ImageOps.exif_transpose(rgb), (width, height), Image.Resampling.BOX)
        rgb = rgb.convert("L").convert("RGB") if channels == 1 else rgb
    if rgb.size != (width, height):
        got = f"{rgb.width}x{rgb.height}"
        raise DataError(f"{name} of {width}x{height} pixels", got, "send that size, or allow resizing")
    return pictures.on_grid(pictures.with_channels(pictures.pixels(rgb), channels, name), info.grid)


def from_base64(text: str, info: DataInfo, *, name: str, limit: int, resize: bool = False) -> Pixels:
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"an image file in base64 in {name}", "other text", "encode the file") from None
    return decode(data, info, name=name, limit=limit, resize=resize)


def from_numbers(values: Any, info: DataInfo, *, name: str) -> Pixels:
    """Integers 0..q [channels][height][width]; nothing is rounded behind the client's back."""
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        array = np.empty(0)
    if array.shape != info.shape:
        got = "ragged lists or no numbers" if not array.size else "x".join(map(str, array.shape))
        size = "x".join(map(str, info.shape))
        raise DataError(f"{name} as numbers [{size}] (channels, height, width)", got, "mend the lists")
    if not np.isfinite(array).all():
        raise DataError(f"finite numbers in {name}", "NaN or infinity", "mend the pixels")
    top = info.grid.max_value
    if array.min() < 0 or array.max() > top or (array != np.floor(array)).any():
        got = f"{array.min():g} to {array.max():g}"
        raise DataError(f"whole numbers from 0 to {top} in {name}", got, f"scale to 0..{top} and round")
    return array.astype(np.uint8)


def png(image: Pixels, grid: Grid) -> bytes:
    """The image itself, pixel by pixel: `decode` of it gives the same grid integers."""
    shown = ((image.astype(np.int64) * 510 + grid.max_value) // (2 * grid.max_value)).astype(np.uint8)
    picture = Image.fromarray(shown[0] if len(shown) == 1 else shown.transpose(1, 2, 0))
    out = io.BytesIO()
    picture.save(out, format="png")
    return out.getvalue()
