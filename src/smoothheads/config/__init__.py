"""Configurations to and from JSON. Unknown or mistyped keys are errors; equal settings have equal JSON.

A field annotated with a component's base class is parsed by the class that the base's `registry` has for the
`name` in the data. A field with `unless_default` in its metadata is written only when it was set, so that
settings from before it existed keep their hashes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from smoothheads.errors import ConfigError, SettingError, SmoothheadsError, suggest
from smoothheads.registry import Registry

T = TypeVar("T")
Json = dict[str, Any]

MAX_BYTES = 1 << 26  # nothing that we write comes near
MAX_DEPTH = 50
MAX_INTEGER = 2**64  # seeds; beyond it lie numbers that cannot become floats


# Dataclasses and plain dicts


def to_dict(config: Any) -> Json:
    """Returns a nested plain dict; a component is tagged with its `name`."""
    tag = _tag(config)
    out: Json = {} if tag is None else {"name": tag}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not (field.metadata.get("unless_default") and value == field.default):
            out[field.name] = _plain(value)
    return out


def from_dict(kind: type[T], data: Any, where: str = "") -> T:
    """Returns the configuration of type `kind` that `data` describes.

    Args:
        kind: The dataclass to make.
        data: A nested dict, as `to_dict` returns it; fields that are left out have their defaults.
        where: The dotted key of `data` in its file, for the SettingError about what is wrong in it.
    """
    if not isinstance(data, dict):
        raise SettingError(f"Write {where or 'the settings'} as a table of fields, not as {data!r}.", where)
    if upgrade := getattr(kind, "upgrade", None):  # the class reads a shorter form, too
        data = upgrade(dict(data))
    # Refuse keys that are no field, apart from the `name` that tags a component.
    hints = typing.get_type_hints(kind)
    known = {f.name: hints[f.name] for f in dataclasses.fields(typing.cast(Any, kind))}
    values = {key: value for key, value in data.items() if not (key == "name" and _tag(kind))}
    for key in values:
        if key not in known:
            path = join(where, key)
            raise SettingError(f"Unknown setting {path!r}: {suggest(str(key), known)}", path)
    # Parse the values by the types of their fields; the class checks their ranges.
    parsed = {key: _parse(known[key], value, join(where, key)) for key, value in values.items()}
    try:
        return kind(**parsed)
    except ConfigError as error:  # a value out of its range: say where it stands
        raise SettingError(str(error), join(where, getattr(error, "key", ""))) from error
    except TypeError as error:  # a required field that is missing
        raise SettingError(f"Add what is missing in {where or kind.__name__}: {error}.", where) from error


def with_overrides(config: T, changes: Mapping[str, Any]) -> T:
    """Returns a copy of `config` with other values.

    Args:
        config: Any configuration.
        changes: New values by dotted key, as in {"train.epochs": 3}, or as nested tables. A table that names
            another component (`{"objective.method": {"name": "macer"}}`) replaces it with all its fields.
    """
    # Turn dotted keys into nested tables, and lay them over the old values.
    nested: Json = {}
    for key, value in changes.items():
        *path, last = key.split(".")
        table = _plain(value)
        for part in (last, *reversed(path)):
            table = {part: table}
        nested = merge(nested, table)
    return from_dict(type(config), merge(to_dict(config), nested))


def merge(old: Mapping[str, Any], new: Mapping[str, Any]) -> Json:
    """Returns `new` laid over `old`; a table that names another component replaces the old one."""
    merged = dict(old)
    for key, value in new.items():
        before = merged.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            other = "name" in value and value["name"] != before.get("name")
            merged[key] = dict(value) if other else merge(before, value)
        else:
            merged[key] = value
    return merged


def join(path: str, key: object) -> str:
    """Returns the dotted key of `key` in the table at `path`."""
    return f"{path}.{key}".strip(".")


def _tag(config: Any) -> str | None:
    """Returns the fixed `name` that tells components apart (the ClassVar of a component's dataclass)."""
    fields = {f.name for f in dataclasses.fields(config)}
    name = getattr(config, "name", None)
    return name if isinstance(name, str) and "name" not in fields else None


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, Mapping):
        return {k: _plain(v) for k, v in value.items()}
    return str(value) if isinstance(value, Path) else value


def _parse(hint: Any, value: Any, where: str) -> Any:
    """Returns `value` as the type `hint` wants it; raises SettingError where it does not fit."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return _parse_union(args, value, where)
    if origin is typing.Literal:
        if value not in args:
            raise SettingError(f"Unknown {where} {value!r}: {suggest(str(value), map(str, args))}", where)
        return value
    if origin is dict:
        if not isinstance(value, dict):
            raise SettingError(f"Write {where} as a table, not as {value!r}.", where)
        return {key: _parse(args[1], each, join(where, key)) for key, each in value.items()}
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise SettingError(f"Write {where} as a list [a, b, ...], not as {value!r}.", where)
        if all(type(v) is args[0] for v in value):  # the usual case; there may be thousands of indices
            return tuple(value)
        return tuple(_parse(args[0], v, where) for v in value)
    if isinstance(hint, type) and (registry := vars(hint).get("registry")) is not None:
        return _parse_component(registry, value, where)
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(Any, hint), value, where)
    if hint is float and type(value) is int:
        return float(value)
    if hint is not Any and type(value) is not hint:
        raise SettingError(
            f"Set {where} to a value of type {getattr(hint, '__name__', hint)}, not {value!r}.", where
        )
    return value


def _parse_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    """Returns `value` as the first type that fits; the last one says what is wrong with it."""
    if value is None and type(None) in args:
        return None
    *others, last = (member for member in args if member is not type(None))
    for member in others:
        with contextlib.suppress(ConfigError):
            return _parse(member, value, where)
    return _parse(last, value, where)


def _parse_component(registry: Registry[Any], value: Any, where: str) -> Any:
    """Returns the component in `value`; its name alone stands for the component with its defaults."""
    data = {"name": value} if isinstance(value, str) else value
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise SettingError(
            f"Write {where} as a {registry.kind} with its `name` and fields, not as {value!r}.", where
        )
    try:
        component = registry.get(data["name"])
    except ConfigError as error:
        raise SettingError(str(error), where) from None
    return from_dict(component, data, where)


# How two configurations differ


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yields every dotted key with its value that is not a table with keys of its own."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from leaves(inner, join(path, key))
    else:
        yield path, value


def differences(stored: Json, now: Json) -> list[tuple[str, str, str]]:
    """Returns every key whose values differ, `created` apart, as (dotted key, stored, now)."""
    missing = object()

    def text(value: Any) -> str:
        full = "nothing" if value is missing else json.dumps(value)
        return full if len(full) <= 60 else full[:57] + "..."

    # JSON knows no tuples, so both sides go through it.
    old, new = (dict(leaves(json.loads(json.dumps(value)))) for value in (stored, now))
    keys = sorted(key for key in old.keys() | new.keys() if key != "created")
    pairs = [(key, old.get(key, missing), new.get(key, missing)) for key in keys]
    return [(key, text(a), text(b)) for key, a, b in pairs if a != b]


def require_equal(stored: Json, now: Json, error: type[SmoothheadsError], what: str, remedy: str) -> None:
    """Raises `error` with every key in which `now` differs from what is stored.

    Args:
        stored: The settings to agree with.
        now: The settings at hand.
        error: The class of the error.
        what: Names what is stored, as in "the settings of rank 0".
        remedy: What the user can do, without a full stop.
    """
    if found := differences(stored, now):
        changes = "; ".join(f"{key} = {b} instead of {a}" for key, a, b in found)
        raise error(f"These settings differ from {what}: {changes}. {remedy[:1].upper()}{remedy[1:]}.")


# JSON from outside


def load_json(path: Path) -> Json:
    """Returns the JSON object in a file; raises ConfigError where it is missing, damaged or unreasonable."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"There is no file {path}: check the path.") from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error}): check the path.") from None
    return parse_json(data, str(path))


def parse_json(data: bytes | str, where: str) -> Json:
    """Returns the JSON object in a text: each key once, limited depth, integers below 2**64."""

    def unique(pairs: list[tuple[str, Any]]) -> Json:
        values = dict(pairs)
        if len(values) < len(pairs):
            raise ValueError("a key that appears twice")
        return values

    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES >> 20} MiB")
        value = json.loads(data, object_pairs_hook=unique)
        _check_bounds(value)
    except (ValueError, RecursionError) as error:  # a ValueError is also how Python refuses 5000 digits
        why = "too many levels" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"{where} holds no usable JSON ({why}): repair or recreate the file.") from None
    if not isinstance(value, dict):
        raise ConfigError(f"{where} holds no JSON object but a {type(value).__name__}: recreate it.")
    return value


def _check_bounds(value: Any, depth: int = 1) -> None:
    """Raises ValueError for too many levels, integers that are no seeds, and text that no file can hold."""
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} levels")
    if isinstance(value, (dict, list)):
        for item in [*value, *value.values()] if isinstance(value, dict) else value:
            _check_bounds(item, depth + 1)
    elif isinstance(value, str):
        value.encode()  # half a surrogate pair cannot be written anywhere
    elif isinstance(value, int) and abs(value) > MAX_INTEGER:
        raise ValueError("an integer beyond 2**64")
