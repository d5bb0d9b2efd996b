"""Configurations to and from JSON: unknown or mistyped keys are errors; equal settings have equal hashes.

A field annotated with a component's base class is parsed by the class that the base's `registry` has for the
`name` in the data. A class that can read what earlier versions wrote says how in a classmethod
`upgrade(data) -> data`, which sees the JSON object before anything is checked. A field with `unless_default`
in its metadata is written only when it was set, so that settings from before it came keep their hashes.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import types
import typing
from typing import Any, TypeVar

from smoothheads.config.reader import Json
from smoothheads.errors import ConfigError, suggest
from smoothheads.registry import Registry

T = TypeVar("T")


def to_dict(config: Any) -> Json:
    """Nested plain dict; a component is tagged with its `name`."""
    if not dataclasses.is_dataclass(config):
        raise TypeError(f"expected a configuration, got {type(config).__name__}")
    out: Json = {"name": _tag(config)} if _tag(config) else {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if not (field.metadata.get("unless_default") and value == field.default):
            out[field.name] = _plain(value)
    return out


def from_dict(kind: type[T], data: Any, where: str = "config") -> T:
    """The configuration of type `kind` in `data`; raises ConfigError naming the offending key."""
    if not isinstance(data, dict):
        raise ConfigError(f"an object at {where}", type(data).__name__, "see `smoothheads info RECIPE`")
    if upgrade := getattr(kind, "upgrade", None):
        try:
            data = upgrade(dict(data))
        except (LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
            got = f"{type(error).__name__}: {error}"
            raise ConfigError(f"readable values at {where}", got, "correct the value") from None
    hints = typing.get_type_hints(kind)
    known = {f.name: hints[f.name] for f in dataclasses.fields(typing.cast(Any, kind))}
    values = {key: value for key, value in data.items() if not (key == "name" and _tag(kind))}
    for key in values:
        if key not in known:
            raise ConfigError(f"a field of {kind.__name__} at {where}", repr(key), suggest(key, known))
    try:
        return kind(**{key: _parse(known[key], value, f"{where}.{key}") for key, value in values.items()})
    except TypeError as error:  # a required field that is missing
        raise ConfigError(
            f"every field of {kind.__name__} at {where}", str(error), "add the field"
        ) from error


def digest(config: Any) -> str:
    """sha256 of the canonical JSON; two runs with the same digest were told the same."""
    return hashlib.sha256(json.dumps(_plain(config), sort_keys=True).encode()).hexdigest()


def _tag(config: Any) -> str | None:
    """The fixed `name` that tells components apart (ClassVar of a method's dataclass)."""
    fields = {f.name for f in dataclasses.fields(config)}
    name = getattr(config, "name", None)
    return name if isinstance(name, str) and "name" not in fields else None


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return to_dict(value)
    if isinstance(value, (tuple, list)):
        return [_plain(v) for v in value]
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return value


def _parse(hint: Any, value: Any, where: str) -> Any:
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        return _parse(args[0], value, where)
    if origin in (typing.Union, types.UnionType):
        return _parse_union(args, value, where)
    if origin is typing.Literal:
        if value not in args:
            known = [str(a) for a in args]
            raise ConfigError(f"a known value of {where}", repr(value), suggest(str(value), known))
        return value
    if origin is dict:
        if not isinstance(value, dict):
            raise ConfigError(f"an object at {where}", repr(value), "write it as {...}")
        return {key: _parse(args[1], each, f"{where}.{key}") for key, each in value.items()}
    if origin is tuple:
        return _parse_tuple(args[0], value, where)
    if (registry := vars(hint).get("registry") if isinstance(hint, type) else None) is not None:
        return _parse_component(registry, value, where)
    if dataclasses.is_dataclass(hint):
        return from_dict(typing.cast(Any, hint), value, where)
    if hint is Any:
        return value
    if hint is float and type(value) is int:
        return float(value)
    if type(value) is not hint:
        raise ConfigError(f"{getattr(hint, '__name__', hint)} at {where}", repr(value), "correct the value")
    return value


def _parse_component(registry: Registry[Any], value: Any, where: str) -> Any:
    """The name alone stands for the component with its defaults."""
    data = {"name": value} if isinstance(value, str) else value
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise ConfigError(
            f"an object with a `name` at {where}", repr(value), f"a {registry.kind} has a name and its fields"
        )
    return from_dict(registry.get(data["name"]), data, where)


def _parse_tuple(hint: Any, value: Any, where: str) -> tuple[Any, ...]:
    if not isinstance(value, (list, tuple)):
        raise ConfigError(f"a list at {where}", repr(value), "write it as [a, b, ...]")
    if all(type(v) is hint for v in value):  # as they should be; there may be thousands
        return tuple(value)
    return tuple(_parse(hint, v, where) for v in value)


def _parse_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in args:
        return None
    members = [a for a in args if a is not type(None)]
    for member in members[:-1]:
        try:
            return _parse(member, value, where)
        except ConfigError:
            continue
    return _parse(members[-1], value, where)
