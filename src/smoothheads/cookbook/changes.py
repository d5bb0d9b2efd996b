"""A recipe with changes, as a Python user writes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from smoothheads.config import from_dict, to_dict
from smoothheads.errors import ConfigError, suggest
from smoothheads.training.config import RunConfig

Json = dict[str, Any]


def recipe(
    name: str,
    *,
    structure: str | None = None,
    method: str | None = None,
    sigma: float | None = None,
    **changes: Any,
) -> RunConfig:
    """The settings of a recipe, with another structure, method or sigma and other changes.

    A change names a field wherever it stands (`epochs=3`, `root="data"`), or a stage with a mapping
    (`train={"epochs": 3}`). A misspelt one suggests the nearest.
    """
    from smoothheads.cookbook import get

    data = to_dict(get(name, structure=structure, method=method, sigma=sigma).config)
    for key, value in changes.items():
        _change(data, key, value)
    return from_dict(RunConfig, data)


def _change(data: Json, key: str, value: Any) -> None:
    if key in data and isinstance(data[key], dict):
        if not isinstance(value, Mapping):
            raise ConfigError(f"a mapping for {key}", repr(value), f"write {key}={{...}}, or one field")
        data[key] = merge(data[key], value)
        return
    places = [(path, part) for path, part in _tables(data) if key in part]
    if not places:
        known = {field for _, part in _tables(data) for field in part}
        raise ConfigError("a setting of the recipe", repr(key), suggest(key, known))
    if len(places) > 1:
        where = " or ".join(path for path, _ in places)
        raise ConfigError(f"one setting {key!r}", f"those of {where}", "name its stage, as train={...}")
    places[0][1][key] = str(value) if hasattr(value, "__fspath__") else value


def _tables(data: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    yield path or "run", data
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _tables(value, f"{path}.{key}" if path else key)


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json:
    """`new` laid over `old`, table by table; a table that names another component replaces the old one."""
    merged = dict(old)
    for key, value in new.items():
        before = merged.get(key)
        replaces = isinstance(value, Mapping) and "name" in value and value["name"] != _name(before)
        both = isinstance(value, Mapping) and isinstance(before, Mapping)
        merged[key] = merge(before, value) if both and not replaces else value  # type: ignore[arg-type]
    return merged


def _name(value: Any) -> Any:
    return value.get("name") if isinstance(value, Mapping) else None
