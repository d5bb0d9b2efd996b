"""Pictures from elsewhere as a network's input: files, folders, globs, arrays in .npz, rows of .parquet."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from PIL import Image

from smoothheads.data.base import DataInfo
from smoothheads.data.coerce import as_pixels
from smoothheads.data.config import DataConfig
from smoothheads.data.downscale import average
from smoothheads.data.folder import SUFFIXES
from smoothheads.data.images import decode, on_grid, pixels, with_channels
from smoothheads.data.npz import read_members
from smoothheads.data.parquet import encoded_images
from smoothheads.data.splits import load_test
from smoothheads.errors import DataError
from smoothheads.types import Pixels

ARRAY_KEYS = ("images", "test_images", "x_test", "X_test", "x", "arr_0")


@dataclass(frozen=True, slots=True)
class Frame:
    """What a network takes and how pictures were brought to it in training."""

    info: DataInfo
    data: DataConfig | None = None
    """The data set of the training: its cut and its downscale are applied."""
    resize: bool = False
    """Resize pictures of another size: the shorter side to fit, then the centre."""

    def read(self, data: bytes | Path, source: str) -> Pixels:
        """Grid integers of the network's size; raises DataError for a picture that is not of a size that
        training would take, unless it may be resized.

        On a grid coarser than 8 bits the grey levels are rounded to it, and distances count from there.
        """
        picture = decode(data, source, strict=True)
        channels, height, width = self.info.shape
        factor = 1 if self.data is None else self.data.downscale
        if self.data is not None:
            picture = self.data.framed(picture)
        if self.resize and picture.size not in ((width, height), (width * factor, height * factor)):
            picture = _covering(picture, width * factor, height * factor)
        image = pixels(picture)
        if image.shape[1:] == (height * factor, width * factor):
            image = average(image, factor) if factor > 1 else image
        elif image.shape[1:] != (height, width):
            also = f" (averaged to {width}x{height}, or of that size)" if factor > 1 else ""
            raise DataError(
                f"{source} of {width * factor}x{height * factor} pixels{also}",
                f"{image.shape[2]}x{image.shape[1]}",
                "crop it as in training, or allow resizing (--resize)",
            )
        return on_grid(with_channels(image, channels, source), self.info.grid)


@dataclass(frozen=True, slots=True)
class Input:
    """One picture; reading it may raise DataError."""

    name: str
    read: Callable[[], Pixels]


def read_image(path: Path, info: DataInfo) -> Pixels:
    """Grid integers of exactly the size that `info` says; nothing is resized behind the user's back."""
    return Frame(info).read(path, str(path))


def find_inputs(arguments: Sequence[str], frame: Frame) -> Iterator[Input]:
    """The pictures that the arguments name: files, folders (with all below), patterns, .npz and .parquet;
    test:7 is image 7 of the test split of the data set that the network was trained on."""
    for argument in arguments:
        path = Path(argument)
        if (asked := re.fullmatch(r"test:(\d+)", argument)) and not path.exists():
            yield Input(argument, partial(_test_image, int(asked[1]), frame))
        elif path.is_dir():
            files = [file for file in sorted(path.rglob("*")) if file.suffix.lower() in SUFFIXES]
            yield from _files(files, frame, f"pictures in {path}")
        elif not path.exists() and any(sign in argument for sign in "*?["):
            files = [Path(name) for name in sorted(glob.glob(argument, recursive=True))]
            yield from _files(files, frame, f"files like {argument}")
        elif path.suffix == ".npz" and path.exists():
            yield from _arrays(path, frame)
        elif path.suffix == ".parquet" and path.exists():
            for row, data in enumerate(encoded_images(path)):
                name = f"{path}[{row}]"
                yield Input(name, partial(frame.read, data, name))
        else:
            yield from _files([path], frame)


def _test_image(index: int, frame: Frame) -> Pixels:
    if frame.data is None:
        raise DataError("a network that names its data set", "none", "name an image file")
    test = load_test(frame.data)
    if index >= len(test):
        raise DataError(f"a test image from 0 to {len(test) - 1}", str(index), "choose one of them")
    return as_pixels(test.image(index), frame.info)


def _files(paths: Sequence[Path], frame: Frame, what: str = "") -> Iterator[Input]:
    if not paths:
        raise DataError(what, "none", f"known endings: {' '.join(SUFFIXES)}")
    return (Input(str(path), partial(frame.read, path, str(path))) for path in paths)


def _arrays(path: Path, frame: Frame) -> Iterator[Input]:
    members = read_members(path)
    key = next((key for key in ARRAY_KEYS if key in members), None)
    if key is None:
        held = ", ".join(members) or "nothing"
        raise DataError(f"images under {', '.join(ARRAY_KEYS)} in {path}", held, "save them as `images`")
    images: NDArray[Any] = members[key]
    for row in range(len(images)):
        yield Input(f"{path}[{row}]", partial(as_pixels, images[row], frame.info))


def _covering(picture: Image.Image, width: int, height: int) -> Image.Image:
    """Resized until it covers the rectangle, then its centre."""
    scale = max(width / picture.width, height / picture.height)
    size = max(width, round(picture.width * scale)), max(height, round(picture.height * scale))
    resized = picture.resize(size, Image.Resampling.BILINEAR)
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return resized.crop((left, top, left + width, top + height))
