"""Pydantic models of requests and answers; they check requests and make the OpenAPI description."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    ValidationInfo,
    field_validator,
)

from smoothheads.errors import ConfigError, DataError, suggest
from smoothheads.serve.server import Limits

Source = bytes | NDArray[np.float64]
"""An image file, or pixels as numbers [C, H, W]; the network's image size is not known yet."""


class ImageRequest(BaseModel):
    """Body of /v1/certify, /v1/predict and /v1/attack; a form has the same fields, with files as `image`."""

    model_config = ConfigDict(extra="forbid")

    image: str | None = Field(None, description="An image file in base64.")
    images: list[str] = Field([], description="Several of them.")
    pixels: list[Any] | None = Field(
        None, description="Grid integers [C][H][W], or a batch of them [N][C][H][W]."
    )
    model: str | None = Field(None, description="One of /v1/models; the first one if omitted.")
    n: int | None = Field(None, ge=1, description="Samples per image.")
    radius: float | None = Field(
        None, gt=0, le=1e6, description="Certify: stop when this radius is certified. Attack: go this far."
    )
    seconds: float | None = Field(None, gt=0, description="Give what is certified by then.")
    resize: bool = Field(False, description="Allow images of another size or colour.")
    _sources: list[Source] = PrivateAttr(default_factory=list)

    @field_validator("n", "seconds")
    @classmethod
    def _within_limits(cls, value: float | None, info: ValidationInfo) -> float | None:
        most = getattr(info.context, str(info.field_name))
        if value is not None and value > most:
            raise ValueError(f"must be at most {most:g} on this server")
        return value

    @property
    def sources(self) -> list[Source]:
        """The image files and pixel arrays in the order of the answers."""
        return self._sources

    def read_sources(self, files: Sequence[bytes], most: int) -> None:
        """Decodes texts and numbers; raises DataError for what is neither a file nor pixels.

        Args:
            files: Image files that came with a form; they are the first ones.
        """
        texts = [*([] if self.image is None else [self.image]), *self.images]
        self._sources = [*files, *(_from_base64(text, f"image {i}") for i, text in enumerate(texts, 1))]
        if self.pixels is not None:
            try:
                array = np.asarray(self.pixels, dtype=np.float64)
            except (TypeError, ValueError, OverflowError):
                raise DataError("The field pixels must hold numbers in lists of equal length.") from None
            self._sources += list(array) if array.ndim == 4 else [array]
            self.pixels = None  # a million lists take much more memory than the array
        count = len(self._sources)
        if not count:
            raise ConfigError("The request has no image: send image, images or pixels.")
        if count > most:
            raise ConfigError(f"The request has {count} images; this server takes at most {most} at once.")


class Prediction(BaseModel):
    """Answer for one image; it has only `error` if there was no time for it."""

    label: str | None = Field(None, alias="class", description="null for an abstention.")
    prediction: int | None = None
    abstained: bool | None = None
    n: int | None = Field(None, ge=0)
    votes: list[int] | None = Field(None, description="Samples that the network gave to each class.")
    heads: dict[str, list[int]] | None = None
    error: str | None = None


class Certificate(Prediction):
    radius: float | None = Field(None, ge=0, description="Rounded down; pixels count from 0 to 1.")
    p_lower: float | None = None
    k: int | None = Field(None, ge=0)
    n0: int | None = Field(None, ge=0)


class Facts(BaseModel):
    sigma: float | None = None
    alpha: float | None = None
    norm: str | None = None
    aggregation: str | None = None
    scope: str | None = None
    notes: list[str] | None = None


class Predicted(Facts):
    answers: list[Prediction]


class Certified(Facts):
    answers: list[Certificate]


class Error(BaseModel):
    error: str
    resize: bool = Field(False, description="Whether resizing would help.")


def parse(body: bytes | Mapping[str, str], files: Sequence[bytes], limits: Limits) -> ImageRequest:
    """Returns a request; raises ConfigError or DataError with one sentence.

    Args:
        body: JSON, or the fields of a form.
        files: The files of the form.
    """
    try:
        if isinstance(body, bytes):
            request = ImageRequest.model_validate_json(body, context=limits)
        else:
            # A browser sends every field of a form, also those that were left empty.
            given = {name: value for name, value in body.items() if value != ""}
            request = ImageRequest.model_validate(given, context=limits)
    except ValidationError as error:
        raise ConfigError(sentence(error.errors(include_url=False, include_input=False)[0])) from None
    request.read_sources(files, limits.images)
    return request


def sentence(first: Mapping[str, Any], what: str = "field") -> str:
    """Returns one sentence on a problem that pydantic found.

    Args:
        first: The first of its errors.
        what: What a value is called.
    """
    # Only the name of the value is from the client.
    place = ".".join(str(part) for part in first["loc"] if part != "query")[:80]
    if first["type"] == "extra_forbidden":
        return f"There is no field {place!r}; {suggest(place, ImageRequest.model_fields)}."
    message = first["msg"].removeprefix("Value error, ").removesuffix(".")
    if not place:
        return f"The request is not as described in /openapi.json: {message}."
    return f"The {what} {place}: {message[:1].lower()}{message[1:]}."


def _from_base64(text: str, name: str) -> bytes:
    if text.startswith("data:"):
        text = text.partition(",")[2]
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"The text of {name} is not base64: encode the whole image file.") from None
