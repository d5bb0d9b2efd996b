"""Images from clients: decoded within limits and put on the network's grid; and test images to try."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from smoothheads.data import images as pictures
from smoothheads.errors import DataError
from smoothheads.types import Grid, Pixels

if TYPE_CHECKING:
    from smoothheads.data import DataInfo, Dataset

T = TypeVar("T")
CANDIDATES: Final = 2000
"""Test images among which those to try are chosen."""


class ResizableError(DataError):
    """Raised for an image that the network could take if it was resized."""


def decode(data: bytes, info: DataInfo, name: str, limit: int, resize: bool = False) -> Pixels:
    """Returns grid integers [C, H, W] of the size that the network takes.

    With `resize` any image is made to fit: upright, cut to the shape, scaled, and grey if need be. The size
    is read from the head of the file, so that nothing large is unpacked.

    Args:
        info: Shape and grid that the network takes.
        limit: Most pixels, width times height.
        resize: Whether another size or colour is allowed.
    """
    try:
        return _fit(data, info, name, limit, resize)
    except DataError as error:
        if resize:
            raise
        # Resizing is offered only where it helps; a 16-bit image, say, stays refused.
        try:
            _fit(data, info, name, limit, True)
        except DataError:
            raise error from None
        raise ResizableError(str(error)) from None


def _fit(data: bytes, info: DataInfo, name: str, limit: int, resize: bool) -> Pixels:
    rgb = pictures.decode(data, name, strict=not resize, max_pixels=limit)
    channels, height, width = info.shape
    # Upright first: the shape of the picture is that which a person sees.
    if resize:
        rgb = ImageOps.fit(ImageOps.exif_transpose(rgb), (width, height), Image.Resampling.BOX)
        rgb = rgb.convert("L").convert("RGB") if channels == 1 else rgb
    if rgb.size != (width, height):
        raise DataError(
            f"The network takes images of {width}x{height} pixels, and {name} has {rgb.width}x{rgb.height}: "
            "send that size, or allow resizing."
        )
    return pictures.on_grid(pictures.with_channels(pictures.pixels(rgb), channels, name), info.grid)


def from_numbers(array: NDArray[np.float64], info: DataInfo, name: str) -> Pixels:
    """Returns grid integers [C, H, W] in 0..q; others are refused, because rounding changes the image."""
    if array.shape != info.shape:
        wanted, got = ("x".join(map(str, shape)) for shape in (info.shape, array.shape))
        raise DataError(
            f"The network takes pixels [{wanted}] (channels, height, width), and {name} is [{got}]."
        )
    top = info.grid.max_value
    if not (np.isfinite(array) & (array >= 0) & (array <= top) & (array == np.floor(array))).all():
        raise DataError(f"The pixels of {name} must be whole numbers from 0 to {top}: scale and round them.")
    return array.astype(np.uint8)


def is_small(data: bytes) -> bool:
    """Returns whether decoding takes a moment only: its time is bounded by bytes times pixels."""
    if len(data) > 2**16:
        return False
    try:
        with Image.open(io.BytesIO(data), formats=pictures.FORMATS) as picture:
            return picture.width * picture.height <= 2**16
    except Exception:  # Pillow raises whatever it stumbles over; `decode` says what is wrong
        return True


def png(image: Pixels, grid: Grid) -> bytes:
    """Returns the image as PNG, pixel by pixel: `decode` of it gives the same grid integers."""
    shown = ((image.astype(np.int64) * 510 + grid.max_value) // (2 * grid.max_value)).astype(np.uint8)
    picture = Image.fromarray(shown[0] if len(shown) == 1 else shown.transpose(1, 2, 0))
    out = io.BytesIO()
    picture.save(out, format="png")
    return out.getvalue()


class cached(Generic[T]):  # noqa: N801  (used like functools.cache)
    """Remembers what `read` returns for a path until the `stamp` of the path changes."""

    def __init__(self, read: Callable[[Path], T], stamp: Callable[[Path], object] = lambda _: None) -> None:
        self._read, self._stamp = read, stamp
        self._values: dict[Path, tuple[object, T]] = {}

    def __call__(self, path: Path) -> T:
        stamp, known = self._stamp(path), self._values.get(path)
        if known is None or known[0] != stamp:
            known = self._values[path] = stamp, self._read(path)
        return known[1]


def picture(dataset: Dataset, index: int) -> bytes | None:
    """Returns PNG of the image with that index in its split, or None if the data set has not got it."""
    places = (dataset.indices == index).nonzero()[0]
    return png(dataset.image(int(places[0])), dataset.info.grid) if len(places) else None


def samples(dataset: Dataset, count: int) -> list[dict[str, Any]]:
    """Returns some images to try, from every class in turn."""
    # First the first image of every class, then all second ones, ...
    labels = dataset.labels[:CANDIDATES]
    turn = [np.count_nonzero(labels[:position] == label) for position, label in enumerate(labels)]
    return [
        {
            "index": int(dataset.indices[position]),
            "label": int(labels[position]),
            "class": dataset.info.class_names[labels[position]],
        }
        for position in np.lexsort((labels, turn))[:count]
    ]
