"""The addresses of the API, and their description in OpenAPI 3.1, which is made from them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smoothheads.provenance import versions
from smoothheads.serve.asked import fields
from smoothheads.serve.limits import Limits

EVENTS = "events"
Handler = Callable[[Request], Awaitable[Response]]

_COUNT = {"type": "integer", "minimum": 0}
_VOTES = {"type": "array", "items": _COUNT, "description": "Samples that the network gave to each class."}


@dataclass(frozen=True)
class Endpoint:
    path: str
    handler: Handler
    summary: str
    parameters: tuple[str, ...] = ()
    """Of the query."""
    answer: str | None = None
    """Of a POST of images: the schema of what it gives, or EVENTS if it gives nothing else."""

    @property
    def route(self) -> Route:
        return Route(self.path, self.handler, methods=["POST"] if self.answer else None)


def description(endpoints: Iterable[Endpoint], limits: Limits, *, token: bool) -> dict[str, Any]:
    api: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "smoothheads",
            "version": versions()["smoothheads"],
            "description": "Image classification with a certified radius. With probability at least "
            "1 - alpha no change of the image of norm below `radius` alters its answer.",
        },
        "paths": {
            each.path: {"post": _post(each, limits)} if each.answer else {"get": _get(each)}
            for each in endpoints
        },
        "components": {"schemas": _schemas(limits)},
    }
    if token:
        api["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        api["security"] = [{"token": []}]
    return api


def _schemas(limits: Limits) -> dict[str, Any]:
    answer = {
        "class": {"type": ["string", "null"], "description": "null for an abstention"},
        "prediction": {"type": ["integer", "null"]},
        "abstained": {"type": "boolean"},
        "n": _COUNT,
        "votes": _VOTES,
        "heads": {"type": "object", "additionalProperties": _VOTES},
    }
    certificate = {
        "radius": {"type": "number", "minimum": 0, "description": "rounded down; pixels count from 0 to 1"},
        "p_lower": {"type": "number"},
        "k": _COUNT,
        "n0": _COUNT,
    }
    asked = fields(limits)
    files = {"image": {"type": "array", "items": {"type": "string", "format": "binary"}}}
    form = {name: schema for name, schema in asked.items() if name not in ("image", "images", "pixels")}
    return {
        "Asked": {"type": "object", "additionalProperties": False, "properties": asked},
        "Form": {"type": "object", "properties": files | form},
        "Predicted": _answers(answer),
        "Certified": _answers(answer | certificate),
        "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
    }


def _answers(properties: dict[str, Any]) -> dict[str, Any]:
    facts = {name: {"type": "string"} for name in ("norm", "aggregation", "scope")}
    numbers = {name: {"type": "number"} for name in ("sigma", "alpha")}
    one = {"type": "object", "properties": properties | {"error": {"type": "string"}}}
    return {
        "type": "object",
        "required": ["answers"],
        "properties": {"answers": {"type": "array", "items": one}, **facts, **numbers},
    }


def _post(endpoint: Endpoint, limits: Limits) -> dict[str, Any]:
    events = {"type": "string", "description": "waiting, start, moment or answer or frame, end, error"}
    content: dict[str, Any] = {"text/event-stream": {"schema": events}}
    if endpoint.answer and endpoint.answer != EVENTS:
        content["application/json"] = {"schema": _ref(endpoint.answer)}
    forms = {"application/json": "Asked", "multipart/form-data": "Form"}
    return {
        "summary": endpoint.summary,
        "description": f"At most {limits.images} images and {limits.seconds:g} seconds. With Accept: "
        "text/event-stream (one image) news come while the votes arrive; closing the connection stops it.",
        "requestBody": {"content": {kind: {"schema": _ref(name)} for kind, name in forms.items()}},
        "responses": {"200": {"description": "the answers", "content": content}} | _errors(),
    }


def _get(endpoint: Endpoint) -> dict[str, Any]:
    kinds = {"index": {"type": "integer"}, "id": {"type": "array", "items": {"type": "string"}}}
    return {
        "summary": endpoint.summary,
        "parameters": [
            {"name": name, "in": "query", "schema": kinds.get(name, {"type": "string"})}
            for name in endpoint.parameters
        ],
        "responses": {"200": {"description": "as asked"}} | _errors(),
    }


def _errors() -> dict[str, Any]:
    said = {
        "401": "no token",
        "408": "too slow",
        "413": "too large",
        "422": "a mistake in the request",
        "429": "too many requests under way; try again",
    }
    content = {"application/json": {"schema": _ref("Error")}}
    return {code: {"description": text, "content": content} for code, text in said.items()}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}
