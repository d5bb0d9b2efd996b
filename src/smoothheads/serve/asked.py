"""What a client asks for, read from JSON or a form: `/v1/certify`, `/v1/predict` and `/v1/attack` take the
same fields."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request

from smoothheads.errors import ConfigError, suggest
from smoothheads.serve import images
from smoothheads.serve.limits import Limits

if TYPE_CHECKING:
    from smoothheads.data import DataInfo
    from smoothheads.types import Pixels

Source = Callable[["DataInfo"], "Pixels"]
"""Gives the image when the network's size is known."""


def fields(limits: Limits) -> dict[str, Any]:
    """What a request may hold, as OpenAPI describes it."""
    encoded = {"type": "string", "contentEncoding": "base64", "description": "an image file"}
    return {
        "image": encoded,
        "images": {"type": "array", "items": encoded, "maxItems": limits.images},
        "pixels": {"description": "grid integers [C][H][W], or a batch [N][C][H][W]"},
        "model": {"type": "string", "description": "one of /v1/models; default: the first"},
        "n": {"type": "integer", "minimum": 1, "maximum": limits.n, "description": "samples per image"},
        "radius": {"type": "number", "description": "certify: stop here; attack: go so far"},
        "seconds": {"type": "number", "maximum": limits.seconds, "description": "what holds by then"},
        "resize": {"type": "boolean", "description": "allow images of another size or colour"},
    }


@dataclass(frozen=True, kw_only=True)
class ClientRequest:
    images: Sequence[Source]
    model: str | None = None
    n: int | None = None
    radius: float = math.inf
    """Where a certificate may stop, or how far an attack goes."""
    seconds: float = math.inf


async def read(request: Request, limits: Limits) -> ClientRequest:
    """Raises ConfigError for what is no request of ours."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json":
        return _from_json(await request.body(), limits)
    if kind == "multipart/form-data":
        return await _from_form(request, limits)
    raise ConfigError("JSON or multipart/form-data", kind or "no content type", "set Content-Type")


def image_index(request: Request) -> int:
    """Of an image in its data set, from the query."""
    text = request.query_params.get("index", "")
    if not (text.isascii() and text.isdigit() and len(text) < 13):
        raise HTTPException(422, "index: a whole number")
    return int(text)


def _from_json(body: bytes, limits: Limits) -> ClientRequest:
    try:
        values = json.loads(body, parse_constant=_refused)
    except (ValueError, RecursionError) as error:
        raise ConfigError("JSON in the request", str(error)[:200], "mend the request") from None
    if not isinstance(values, dict):
        raise ConfigError("a JSON object", type(values).__name__, 'for example {"image": "<base64>"}')
    resize = _flag(values.get("resize", False))
    encoded = values.get("images", [])
    pixels = values.get("pixels")
    if "image" in values:
        encoded = [values["image"]]
    if not isinstance(encoded, list) or not all(isinstance(text, str) for text in encoded):
        raise ConfigError("image files in base64", "something else", "pixels takes numbers")
    how: Any = {"limit": limits.pixels, "resize": resize}
    sources: list[Source] = [
        partial(images.from_base64, text, name=f"image {i}", **how) for i, text in enumerate(encoded, 1)
    ]
    if pixels is not None:
        batch = pixels if isinstance(pixels, list) and _depth(pixels) == 4 else [pixels]
        sources += [
            partial(images.from_numbers, numbers, name=f"image {i}")
            for i, numbers in enumerate(batch, len(sources) + 1)
        ]
    return _asked(values, sources, limits)


async def _from_form(request: Request, limits: Limits) -> ClientRequest:
    async with request.form(max_files=limits.images + 1, max_fields=20, max_part_size=limits.body) as form:
        values = {key: value for key, value in form.items() if isinstance(value, str)}
        resize = _flag(values.get("resize", False))
        files = [
            value
            for key, value in form.multi_items()
            if isinstance(value, UploadFile) and key in ("image", "images")
        ]
        data = [await file.read() for file in files]
    how: Any = {"limit": limits.pixels, "resize": resize}
    sources = [partial(images.decode, file, name=f"image {i}", **how) for i, file in enumerate(data, 1)]
    return _asked(values, sources, limits)


def _asked(values: dict[str, Any], sources: Sequence[Source], limits: Limits) -> ClientRequest:
    known = fields(limits)
    for key in values:
        if key not in known:
            raise ConfigError("a known field", repr(key), suggest(key, known))
    if not sources:
        raise ConfigError("at least one image", "none", "send image, images or pixels")
    if len(sources) > limits.images:
        raise ConfigError(f"at most {limits.images} images", str(len(sources)), "send fewer at once")
    model = values.get("model")
    if model is not None and not isinstance(model, str):
        raise ConfigError("a model's name", type(model).__name__, "see /v1/models")
    n = _number(values, "n", limits.n)
    if n is not None and n != int(n):
        raise ConfigError("a whole number n", f"{n:g}", "round it")
    radius, seconds = _number(values, "radius", 1e6), _number(values, "seconds", limits.seconds)
    return ClientRequest(
        images=sources,
        model=model or None,
        n=None if n is None else int(n),
        radius=math.inf if radius is None else radius,
        seconds=limits.seconds if seconds is None else seconds,
    )


def _number(values: dict[str, Any], name: str, most: float) -> float | None:
    value = values.get(name)
    if value is None or value == "":
        return None
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not 0 < number <= most:
        raise ConfigError(f"0 < {name} <= {most:g}", repr(value)[:40], "stay within the server's limits")
    return number


def _flag(value: Any) -> bool:
    known = {True: True, False: False, "true": True, "false": False, "1": True, "0": False, "on": True}
    if not isinstance(value, bool | str) or value not in known:
        raise ConfigError("resize true or false", repr(value)[:40], "leave it out to refuse other sizes")
    return known[value]


def _refused(name: str) -> float:
    raise ValueError(f"{name}, which is no number of JSON")


def _depth(values: Any) -> int:
    depth = 0
    while isinstance(values, list) and values:
        values, depth = values[0], depth + 1
    return depth
