"""JSON that comes from outside: an object that the rest of the program can walk through, or an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from smoothheads.errors import ConfigError

MAX_BYTES = 1 << 26  # nothing that we write comes near
MAX_DEPTH = 50
MAX_INTEGER = 2**64  # seeds; beyond it lie numbers that cannot become floats

Json = dict[str, Any]


def load_json(path: Path) -> Json:
    """The JSON object in a file; raises ConfigError where it is missing, damaged or out of all bounds."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError(f"a file {path}", "none", "check the path") from None
    except OSError as error:
        remedy = "check the path and its permissions"
        raise ConfigError(f"a readable file {path}", str(error), remedy) from None
    return parse_json(data, str(path))


def parse_json(data: bytes | str, where: str) -> Json:
    """The JSON object in a text: each key once, at most MAX_DEPTH levels, integers below MAX_INTEGER."""
    remedy = "repair or recreate the file"
    try:
        if len(data) > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES >> 20} MiB")
        value = json.loads(data, object_pairs_hook=_unique)
        _check(value)
    except (ValueError, RecursionError) as error:  # a ValueError is also how Python refuses 5000 digits
        why = "too many levels" if isinstance(error, RecursionError) else str(error)
        raise ConfigError(f"JSON in {where}", why, remedy) from None
    if not isinstance(value, dict):
        raise ConfigError(f"a JSON object in {where}", type(value).__name__, remedy)
    return value


def _unique(pairs: list[tuple[str, Any]]) -> Json:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key that appears twice")
    return values


def _check(value: Any) -> None:
    """Level by level, not by recursion."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} levels")
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += [*item.keys(), *item.values()]
            elif isinstance(item, list):
                below += item
            elif isinstance(item, str):
                item.encode()  # half a surrogate pair cannot be written anywhere
            elif isinstance(item, int) and abs(item) > MAX_INTEGER:
                raise ValueError("an integer beyond 2**64")
        level = below
