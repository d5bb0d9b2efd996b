"""The API's description in OpenAPI 3.1."""

from __future__ import annotations

from typing import Any

from smoothheads.provenance import versions
from smoothheads.serve.limits import Limits

_COUNT = {"type": "integer", "minimum": 0}
_VOTES = {"type": "array", "items": _COUNT, "description": "Samples that the network gave to each class."}


def description(limits: Limits, *, token: bool) -> dict[str, Any]:
    api: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "smoothheads",
            "version": versions()["smoothheads"],
            "description": "Image classification with a certified radius. With probability at least "
            "1 - alpha no change of the image of norm below `radius` alters its answer.",
        },
        "paths": {
            "/v1/certify": {"post": _post("Class and certified radius of images", "Certified", limits, True)},
            "/v1/predict": {"post": _post("Class of images, or an abstention", "Predicted", limits, True)},
            "/v1/attack": {"post": _post("An image pushed away from its class", None, limits, True)},
            "/v1/models": {"get": _get("The classifiers that are served")},
            "/v1/model": {"get": _get("One of them: classes, image size, sigma, alpha", "model")},
            "/v1/samples": {"get": _get("Test images to try", "model")},
            "/v1/sample": {"get": _get("One of them as PNG", "model", "index")},
            "/v1/runs": {"get": _get("Ledgers, logs and training runs")},
            "/v1/runs/curves": {"get": _get("Certified accuracy over the radius", "id")},
            "/v1/runs/curves.png": {"get": _get("The same as a picture", "id")},
            "/v1/runs/curves.csv": {"get": _get("The same as a table", "id")},
            "/v1/runs/curves.tex": {"get": _get("Their tables for LaTeX", "id")},
            "/v1/runs/compare": {"get": _get("The paired difference of two logs", "id")},
            "/v1/runs/image": {"get": _get("One image in some logs", "id", "index")},
            "/v1/runs/picture": {"get": _get("That image as PNG", "id", "index")},
            "/v1/runs/study": {"get": _get("The tables of a study that was kept", "id")},
            "/v1/runs/study.png": {"get": _get("Its figure", "id")},
            "/v1/runs/study.csv": {"get": _get("The same as tables", "id")},
            "/v1/runs/study.tex": {"get": _get("The same for LaTeX", "id")},
            "/healthz": {"get": _get("Whether the server is alive")},
            "/readyz": {"get": _get("Whether its network is open")},
            "/metrics": {"get": _get("Counters for Prometheus")},
            "/openapi.json": {"get": _get("This description")},
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
    asked = {
        "model": {"type": "string", "description": "one of /v1/models; default: the first"},
        "n": {"type": "integer", "minimum": 1, "maximum": limits.n, "description": "samples per image"},
        "radius": {"type": "number", "description": "certify: stop here; attack: go so far"},
        "seconds": {"type": "number", "maximum": limits.seconds, "description": "what holds by then"},
        "resize": {"type": "boolean", "description": "allow images of another size or colour"},
    }
    encoded = {"type": "string", "contentEncoding": "base64", "description": "an image file"}
    return {
        "Asked": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "image": encoded,
                "images": {"type": "array", "items": encoded, "maxItems": limits.images},
                "pixels": {"description": "grid integers [C][H][W], or a batch [N][C][H][W]"},
                **asked,
            },
        },
        "Form": {
            "type": "object",
            "properties": {"image": {"type": "array", "items": {"type": "string", "format": "binary"}}}
            | asked,
        },
        "Predicted": _answers(answer),
        "Certified": _answers(answer | certificate),
        "Error": {"type": "object", "required": ["error"], "properties": {"error": {"type": "string"}}},
    }


def _answers(properties: dict[str, Any]) -> dict[str, Any]:
    facts = {name: {"type": "string"} for name in ("norm", "rule", "scope")}
    numbers = {name: {"type": "number"} for name in ("sigma", "alpha")}
    one = {"type": "object", "properties": properties | {"error": {"type": "string"}}}
    return {
        "type": "object",
        "required": ["answers"],
        "properties": {"answers": {"type": "array", "items": one}, **facts, **numbers},
    }


def _post(summary: str, answer: str | None, limits: Limits, events: bool) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if answer is not None:
        content["application/json"] = {"schema": _ref(answer)}
    if events:
        content["text/event-stream"] = {
            "schema": {
                "type": "string",
                "description": "waiting, start, moment or answer or frame, end, error",
            }
        }
    forms = {"application/json": "Asked", "multipart/form-data": "Form"}
    return {
        "summary": summary,
        "description": f"At most {limits.images} images and {limits.seconds:g} seconds. With Accept: "
        "text/event-stream (one image) news come while the votes arrive; closing the connection stops it.",
        "requestBody": {"content": {kind: {"schema": _ref(name)} for kind, name in forms.items()}},
        "responses": {"200": {"description": "the answers", "content": content}} | _errors(),
    }


def _get(summary: str, *parameters: str) -> dict[str, Any]:
    kinds = {"index": {"type": "integer"}, "id": {"type": "array", "items": {"type": "string"}}}
    return {
        "summary": summary,
        "parameters": [
            {"name": name, "in": "query", "schema": kinds.get(name, {"type": "string"})}
            for name in parameters
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
