from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from PIL import ExifTags, Image

from smoothheads.data.images import decode, pixels
from smoothheads.errors import DataError

from .builders import pictures, png


def encoded(picture: Image.Image, kind: str) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind)
    return file.getvalue()


def test_png_comes_back_bit_by_bit() -> None:
    image = pictures(1, (3, 9, 7))[0]
    assert np.array_equal(pixels(decode(png(image), "here")), image)


@pytest.mark.parametrize("mode", ["L", "LA", "P", "RGBA"])
def test_other_8_bit_modes_become_rgb(mode: str) -> None:
    grey = Image.fromarray(pictures(1, (9, 7))[0])
    image = pixels(decode(encoded(grey.convert(mode), "PNG"), "here"))
    assert image.shape == (3, 9, 7)
    assert np.array_equal(image[0], np.asarray(grey))


def test_cmyk_jpegs_are_read() -> None:
    data = encoded(Image.new("CMYK", (8, 8), (0, 0, 0, 0)), "JPEG")
    assert pixels(decode(data, "here")).min() >= 250


def test_deeper_images_are_refused() -> None:
    deep = Image.fromarray(np.full((4, 4), 40_000, np.uint16))
    with pytest.raises(DataError, match=r"8-bit pixels \(mode I"):
        decode(encoded(deep, "PNG"), "here")


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.9])
def test_truncated_images_are_refused(kind: str, share: float) -> None:
    data = encoded(Image.fromarray(pictures(1, (40, 40, 3))[0]), kind)
    with pytest.raises(DataError, match="here is not a complete image"):
        decode(data[: int(share * len(data))], "here")


def test_formats_that_start_other_programs_are_not_opened() -> None:
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    still = encoded(Image.new("L", (8, 8)), "GIF")
    for data in (postscript, still):
        with pytest.raises(DataError, match=r"not a complete image \(JPEG, PNG, BMP, PPM or WEBP"):
            decode(data, "here")


def bomb(width: int, height: int) -> bytes:
    """A PNG of a few hundred bytes that claims any size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(9999)))


@pytest.mark.parametrize("side", [8_001, 60_000])
def test_bombs_are_refused_before_they_are_decoded(side: int) -> None:
    with pytest.raises(DataError, match="at most 64,000,000 are read"):
        decode(bomb(side, side), "here")


def test_animations_are_refused() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    file = io.BytesIO()
    frames[0].save(file, "PNG", save_all=True, append_images=frames[1:])
    with pytest.raises(DataError, match="here is animated"):
        decode(file.getvalue(), "here")


def rotated() -> bytes:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    file = io.BytesIO()
    Image.new("RGB", (8, 8)).save(file, "JPEG", exif=exif)
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encoded(Image.new("CMYK", (8, 8)), "JPEG"), "print colours"),
        (encoded(Image.new("RGBA", (8, 8), (9, 9, 9, 128)), "PNG"), "partly transparent"),
        (rotated(), "rotation in its EXIF"),
    ],
)
def test_what_viewers_show_otherwise_is_refused_where_asked(data: bytes, message: str) -> None:
    decode(data, "here")
    with pytest.raises(DataError, match=message):
        decode(data, "here", strict=True)
