"""Configurations to and from JSON, and the checks that they share. Nothing heavy is imported here."""

from smoothheads.config.codec import (
    Json,
    differences,
    digest,
    from_dict,
    join,
    leaves,
    load_json,
    merge,
    parse_json,
    require_equal,
    to_dict,
    with_overrides,
)

__all__ = [
    "Json",
    "differences",
    "digest",
    "from_dict",
    "join",
    "leaves",
    "load_json",
    "merge",
    "parse_json",
    "require_equal",
    "to_dict",
    "with_overrides",
]
