from __future__ import annotations

import io

import numpy as np
import pytest
from PIL import Image

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
    with pytest.raises(DataError, match="8-bit pixels in here, got mode I"):
        decode(encoded(deep, "PNG"), "here")


@pytest.mark.parametrize("kind", ["JPEG", "PNG"])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.9])
def test_truncated_images_are_refused(kind: str, share: float) -> None:
    data = encoded(Image.fromarray(pictures(1, (40, 40, 3))[0]), kind)
    with pytest.raises(DataError, match="a whole image at here"):
        decode(data[: int(share * len(data))], "here")


def test_formats_that_start_other_programs_are_not_opened() -> None:
    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\nshowpage\n"
    with pytest.raises(DataError, match="cannot identify"):
        decode(postscript, "here")
