"""Nested settings as dotted keys, and how two of them differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from smoothheads.config.reader import Json
from smoothheads.errors import SmoothheadsError

_MISSING = object()


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every (dotted key, value) that is not an object with keys of its own."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, f"{path}.{key}" if path else str(key))
    else:
        yield path, value


def differences(stored: Json, now: Json) -> list[tuple[str, str, str]]:
    """Every key but `created` whose values differ, as (dotted key, stored, now)."""
    old, new = (dict(leaves(json.loads(json.dumps(value)))) for value in (stored, now))
    keys = sorted(key for key in old.keys() | new.keys() if key != "created")
    pairs = [(key, old.get(key, _MISSING), new.get(key, _MISSING)) for key in keys]
    return [(key, _show(a), _show(b)) for key, a, b in pairs if a != b]


def require_equal(stored: Json, now: Json, error: type[SmoothheadsError], what: str, remedy: str) -> None:
    """Raises `error` that names every key in which `now` differs from `what` is stored."""
    if found := differences(stored, now):
        before = "; ".join(f"{key} = {value}" for key, value, _ in found)
        raise error(f"{what} ({before})", "; ".join(f"{key} = {value}" for key, _, value in found), remedy)


def _show(value: Any) -> str:
    text = "nothing" if value is _MISSING else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."
