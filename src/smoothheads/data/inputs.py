"""Pictures that a network is to classify: files, folders, patterns, arrays in .npz, rows of .parquet."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from smoothheads.data.arrays import average
from smoothheads.data.base import DataConfig, DataInfo
from smoothheads.data.coerce import as_pixels, channels_first
from smoothheads.data.images import SUFFIXES, decode, on_grid, pixels, with_channels
from smoothheads.data.npz import read_members
from smoothheads.data.parquet import encoded_images
from smoothheads.data.splits import load_test
from smoothheads.errors import DataError
from smoothheads.types import Pixels

ARRAY_KEYS = ("images", "test_images", "x_test", "x", "arr_0")


@dataclass(frozen=True, slots=True)
class Frame:
    """The images that a network takes, and how pictures were brought to that form in training."""

    info: DataInfo
    data: DataConfig | None = None
    """The data set of the training: its crop and its downscale are applied."""
    resize: bool = False
    """Resize pictures of another size: the shorter side to fit, then the centre."""

    def read(self, data: bytes | Path, source: str) -> Pixels:
        """Returns the grid integers of an encoded picture; raises DataError if it cannot be read or does not
        fit."""
        return self.fit(decode(data, source, strict=True), source)

    def fit(self, picture: Image.Image, source: str) -> Pixels:
        """Returns grid integers of the network's size.

        Raises DataError for a picture of a size that training would not take, unless it may be resized. On a
        grid coarser than 8 bits the grey levels are rounded to it, and distances count from there.
        """
        # First what training did to its pictures, then resizing if it is allowed.
        channels, height, width = self.info.shape
        factor = 1 if self.data is None else self.data.downscale
        if self.data is not None:
            picture = self.data.framed(picture)
        full = (width * factor, height * factor)
        if self.resize and picture.size not in ((width, height), full):
            picture = ImageOps.fit(picture, full, Image.Resampling.BILINEAR)
        # A picture of the full size is averaged as in training; one of the network's own size stays.
        image = pixels(picture)
        if picture.size == full:
            image = average(image, factor) if factor > 1 else image
        elif picture.size != (width, height):
            also = f" or {width}x{height}" if factor > 1 else ""
            raise DataError(
                f"{source} has {picture.width}x{picture.height} pixels, and the network takes "
                f"{full[0]}x{full[1]}{also}; crop it as in training, or add --resize."
            )
        return on_grid(with_channels(image, channels, source), self.info.grid)


@dataclass(frozen=True, slots=True)
class Input:
    """One picture; reading it may raise DataError."""

    name: str
    read: Callable[[], Pixels]


def read_image(path: Path, info: DataInfo) -> Pixels:
    """Returns grid integers of exactly the size that `info` says; nothing is resized silently."""
    return Frame(info).read(path, str(path))


def find_inputs(arguments: Sequence[str], frame: Frame) -> Iterator[Input]:
    """Yields the pictures that the arguments name.

    An argument is a file, a folder (with all below), a pattern, an .npz or .parquet file, or test:7 for image
    7 of the test split of the data set that the network was trained on.
    """
    for argument in arguments:
        path = Path(argument)
        if (test := re.fullmatch(r"test:(\d+)", argument)) and not path.exists():
            yield Input(argument, partial(_test_image, int(test[1]), frame))
        elif path.suffix == ".npz" and path.exists():
            yield from _arrays(path, frame)
        elif path.suffix == ".parquet" and path.exists():
            for row, data in enumerate(encoded_images(path)):
                name = f"{path}[{row}]"
                yield Input(name, partial(frame.read, data, name))
        else:
            files = [path]
            if path.is_dir():
                files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in SUFFIXES]
            elif not path.exists() and any(sign in argument for sign in "*?["):
                files = [Path(name) for name in sorted(glob.glob(argument, recursive=True))]
            if not files:
                raise DataError(f"There are no pictures in {argument} (known endings: {' '.join(SUFFIXES)}).")
            yield from (Input(str(file), partial(frame.read, file, str(file))) for file in files)


def _test_image(index: int, frame: Frame) -> Pixels:
    """Returns an image of the test split that belongs to the network's training data."""
    if frame.data is None:
        raise DataError("The network does not say which data set it was trained on; name an image file.")
    test = load_test(frame.data)
    if index >= len(test):
        raise DataError(f"test:{index} does not exist; choose a test image from 0 to {len(test) - 1}.")
    return as_pixels(test.image(index), frame.info)


def _arrays(path: Path, frame: Frame) -> Iterator[Input]:
    """Yields the images of an array, or one input that says what is wrong with all of them."""
    members = read_members(path)
    key = next((key for key in ARRAY_KEYS if key in members), None)
    if key is None:
        raise DataError(
            f"{path} has no images under {', '.join(ARRAY_KEYS)} (it holds {', '.join(members) or 'nothing'}"
            "); save them as `images`."
        )
    images: NDArray[Any] = members[key]
    # Arrays of the network's size and grid are taken as they are. 8-bit pictures of another size or grid are
    # fitted as a PNG of the same pixels would be, if it is clear which axis has the channels.
    channels, height, width = frame.info.shape
    shapes = [frame.info.shape, (height, width, channels), *([(height, width)] if channels == 1 else [])]
    on_grid = images.max(initial=0) <= frame.info.grid.max_value if images.dtype == np.uint8 else True
    pictures = False
    if not on_grid or (images.dtype == np.uint8 and images.shape[1:] not in shapes):
        with suppress(DataError):
            images, pictures = channels_first(images), True

    def fit(image: NDArray[Any], name: str) -> Pixels:
        if not pictures:
            return as_pixels(image, frame.info)
        rgb = np.broadcast_to(image, (3, *image.shape[1:]))  # a grey picture has three equal channels
        return frame.fit(Image.fromarray(np.moveaxis(rgb, 0, -1)), name)

    # An image of zeros tells what is wrong with the shape or type of all of them, in one message.
    blank = partial(fit, np.zeros(images.shape[1:], images.dtype), str(path))
    try:
        blank()
    except DataError:
        yield Input(str(path), blank)
        return
    for row in range(len(images)):
        name = f"{path}[{row}]"
        yield Input(name, partial(fit, images[row], name))
