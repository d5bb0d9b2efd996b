"""A recipe is a named, typed setting and the place where its values come from."""

from __future__ import annotations

from dataclasses import dataclass

from smoothheads.config import RunConfig


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    summary: str
    source: str
    """Where the values come from, and which of them are only recalled."""
    config: RunConfig
