"""Single pictures: 8-bit pixels or one clear error, at a bounded cost."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, UnidentifiedImageError

from smoothheads.data.base import damaged
from smoothheads.errors import DataError
from smoothheads.limits import MAX_PIXELS, MAX_SCANNED, MAX_SCANS
from smoothheads.types import Grid, Pixels

SUFFIXES = (".jpeg", ".jpg", ".png", ".bmp", ".ppm", ".webp")
FORMATS = ("JPEG", "PNG", "BMP", "PPM", "WEBP")  # Pillow knows others, some of which start other programs
EIGHT_BIT = ("1", "L", "LA", "P", "PA", "RGB", "RGBA", "CMYK", "YCbCr")
GREY = ("1", "L")
START_OF_SCAN = b"\xff\xda"  # entropy-coded data never contains it: a byte FF there is followed by 00


def decode(
    data: bytes | Path, source: str, *, strict: bool = False, max_pixels: int = MAX_PIXELS
) -> Image.Image:
    """Returns the full picture as 8-bit RGB; raises DataError for any other file.

    Args:
        data: the encoded picture, or its path.
        source: the name of the picture, for messages.
        strict: also refuse pictures that viewers show otherwise than their pixels say: print colours,
            transparency, a rotation in the EXIF data. Data sets take the plain pixels of those, as the
            field's loaders do.
        max_pixels: refuse a larger picture before it is decoded.
    """
    with _opened(data, source) as picture:
        # What the header tells is checked before the pixels are decoded.
        _check_header(picture, source, max_pixels)
        if picture.format == "JPEG":
            _check_scans(data, picture, source)
        picture.load()
        if strict:
            _check_plain(picture, source)
        return picture if picture.mode == "RGB" else picture.convert("RGB")


def size_of(path: Path) -> tuple[int, int]:
    """Returns width and height from the header of an image file."""
    with _opened(path, str(path)) as picture:
        return picture.size


def pixels(picture: Image.Image) -> NDArray[np.uint8]:
    """Returns the pixels [3, H, W] of an RGB picture, contiguous."""
    return np.ascontiguousarray(np.asarray(picture, dtype=np.uint8).transpose(2, 0, 1))


def picture_array(picture: Image.Image) -> NDArray[np.uint8]:
    """Returns [H, W] of a grey picture in memory, [H, W, 3] of any other."""
    _check_header(picture, "the picture", MAX_PIXELS)
    _check_plain(picture, "the picture")
    return np.asarray(picture.convert("L" if picture.mode in GREY else "RGB"), dtype=np.uint8)


def with_channels(image: NDArray[np.uint8], channels: int, source: str) -> NDArray[np.uint8]:
    """Returns [3, H, W] as [channels, H, W]; raises DataError for a coloured picture where grey is needed."""
    if channels != 1:
        return image
    if not (image == image[:1]).all():
        raise DataError(
            f"{source} is in colour, and the network takes grey images; convert it to grey first."
        )
    return image[:1]


def on_grid(image: Pixels, grid: Grid) -> Pixels:
    """Rounds 8-bit pixels to a coarser grid, halves up, in integers."""
    if grid.max_value == 255:
        return image
    # round(image * q / 255) in integers: (2 image q + 255) // 510.
    return ((image.astype(np.int64) * 2 * grid.max_value + 255) // 510).astype(np.uint8)


@contextmanager
def _opened(data: bytes | Path, source: str) -> Iterator[Image.Image]:
    """Yields the picture, of which only the head is read; every failure inside becomes a DataError."""
    if isinstance(data, Path) and not data.is_file():
        raise DataError(f"There is no image file {source}; check the path.")
    try:
        with Image.open(io.BytesIO(data) if isinstance(data, bytes) else data, formats=FORMATS) as picture:
            yield picture
    except DataError:
        raise
    except Image.DecompressionBombError:
        raise _too_large(source, "far more", MAX_PIXELS) from None
    except UnidentifiedImageError:
        kinds = f"{', '.join(FORMATS[:-1])} or {FORMATS[-1]}"
        raise DataError(
            f"{source} is not a complete image ({kinds}); convert it or fetch it again."
        ) from None
    except Exception as error:  # Pillow's decoders raise whatever they stumble over
        raise damaged(source, "image", error) from error


def _check_header(picture: Image.Image, source: str, max_pixels: int) -> None:
    """Checks what is known before anything is decoded."""
    if picture.width * picture.height > max_pixels:
        raise _too_large(source, f"{picture.width}x{picture.height}", max_pixels)
    # Viewers show one frame of an animation, and nobody knows which.
    if getattr(picture, "n_frames", 1) > 1:
        raise DataError(f"{source} is animated; save the frame that you mean as a picture of its own.")
    if picture.mode not in EIGHT_BIT:
        raise DataError(
            f"{source} does not have 8-bit pixels (mode {picture.mode}); convert it to 8-bit RGB."
        )


def _check_scans(data: bytes | Path, picture: Image.Image, source: str) -> None:
    """A progressive JPEG is decoded once per scan, and a scan may take four bytes only."""
    scans = (data if isinstance(data, bytes) else data.read_bytes()).count(START_OF_SCAN)
    if scans > MAX_SCANS or scans * picture.width * picture.height > MAX_SCANNED:
        raise DataError(
            f"{source} is a JPEG of {scans} scans, which would take too long to decode; save it anew."
        )


def _check_plain(picture: Image.Image, source: str) -> None:
    """Refuses what viewers show otherwise than the pixels say."""
    # Print colours and rotations: viewers convert them, loaders of the field do not.
    if picture.mode == "CMYK":
        raise DataError(f"{source} has print colours (CMYK); convert it to RGB.")
    if picture.getexif().get(ExifTags.Base.Orientation, 1) != 1:
        raise DataError(f"{source} has a rotation in its EXIF data; save it upright and without that entry.")
    # An alpha channel that is opaque everywhere changes nothing.
    if picture.mode in ("LA", "PA", "RGBA") or "transparency" in picture.info:
        alpha = np.asarray(picture.convert("RGBA"))[..., 3]
        if alpha.min(initial=255) < 255:
            raise DataError(f"{source} is partly transparent; put it on a background of your choice.")


def _too_large(source: str, size: str, max_pixels: int) -> DataError:
    return DataError(f"{source} has {size} pixels, and at most {max_pixels:,} are read; shrink it first.")
