"""Single pictures: 8-bit pixels or a clear error, at a bounded cost."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from smoothheads.data.check import damaged
from smoothheads.errors import DataError
from smoothheads.types import Grid, Pixels

FORMATS = ("JPEG", "PNG", "BMP", "PPM", "WEBP")  # Pillow knows others, some of which start other programs
EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
GREY = ("1", "L")
MAX_PIXELS = 64_000_000  # about 200 MB when decoded; a small file may claim any size


def decode(
    data: bytes | Path, source: str, *, strict: bool = False, max_pixels: int = MAX_PIXELS
) -> Image.Image:
    """The whole picture as 8-bit RGB; truncated, foreign, huge, animated or deeper than 8 bits is an error.

    `strict` also refuses what viewers show otherwise than their pixels say: print colours, transparency, a
    rotation in the EXIF data. Data sets take the plain pixels of those, as everybody's loaders do.
    """
    with _opened(data, source) as picture:
        _check(picture, source, max_pixels)
        picture.load()
        if strict:
            _check_plain(picture, source)
        return picture if picture.mode == "RGB" else picture.convert("RGB")


def size_of(path: Path) -> tuple[int, int]:
    """Width and height that the header of an image file says."""
    with _opened(path, str(path)) as picture:
        return picture.size


@contextmanager
def _opened(data: bytes | Path, source: str) -> Iterator[Image.Image]:
    """The picture, of which only the head is read; what fails inside the block is an error of the picture."""
    if isinstance(data, Path) and not data.is_file():
        raise DataError(f"an image file {source}", "none", "check the path")
    try:
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=FORMATS) as picture:
            yield picture
    except DataError:
        raise
    except Image.DecompressionBombError:
        raise _too_large(source, "far more") from None
    except UnidentifiedImageError:
        expected = f"a whole image at {source}, as {', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise DataError(expected, "something else", "convert it, or fetch it again") from None
    except Exception as error:  # Pillow's decoders raise whatever they stumble over
        raise damaged(source, "image", error) from error


def pixels(picture: Image.Image) -> NDArray[np.uint8]:
    """[3, H, W], contiguous."""
    return np.ascontiguousarray(np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1))


def picture_array(picture: Image.Image) -> NDArray[np.uint8]:
    """[H, W] of a grey picture in memory, [H, W, 3] of any other."""
    _check(picture, "the picture")
    _check_plain(picture, "the picture")
    return np.asarray(picture.convert("L" if picture.mode in GREY else "RGB"), dtype=np.uint8)


def with_channels(image: NDArray[np.uint8], channels: int, source: str) -> NDArray[np.uint8]:
    """[3, H, W] as [channels, H, W]; a network for grey pictures gets no coloured one."""
    if channels != 1:
        return image
    if not (image == image[:1]).all():
        raise DataError(f"a grey image in {source}", "a colour image", "convert it to grey first")
    return image[:1]


def _check(picture: Image.Image, source: str, max_pixels: int = MAX_PIXELS) -> None:
    """What can be seen before anything is decoded."""
    if picture.width * picture.height > max_pixels:
        raise _too_large(source, f"{picture.width}x{picture.height}", max_pixels)
    if getattr(picture, "n_frames", 1) > 1:
        raise DataError(f"a still image in {source}", "an animated one", "save the frame that you mean")
    if picture.mode not in EIGHT_BIT:
        raise DataError(f"8-bit pixels in {source}", f"mode {picture.mode}", "convert the image to 8-bit RGB")


def _check_plain(picture: Image.Image, source: str) -> None:
    if picture.mode == "CMYK":
        raise DataError(f"RGB or grey in {source}", "print colours (CMYK)", "convert the image to RGB")
    if picture.getexif().get(ExifTags.Base.Orientation, 1) != 1:
        got = "a rotation in its EXIF data"
        raise DataError(f"an upright image in {source}", got, "save it rotated, without that entry")
    if picture.mode in ("LA", "PA", "RGBA") or "transparency" in picture.info:
        alpha = np.asarray(picture.convert("RGBA"))[..., 3]
        if alpha.min(initial=255) < 255:
            got = "a transparent one"
            raise DataError(f"an opaque image in {source}", got, "put it on a background of your choice")


def _too_large(source: str, got: str, max_pixels: int = MAX_PIXELS) -> DataError:
    return DataError(f"an image of at most {max_pixels:,} pixels in {source}", got, "shrink it first")


def on_grid(image: Pixels, grid: Grid) -> Pixels:
    """8-bit pixels rounded to a coarser grid, half up, in integers."""
    if grid.max_value == 255:
        return image
    return ((image.astype(np.int64) * 2 * grid.max_value + 255) // 510).astype(np.uint8)
