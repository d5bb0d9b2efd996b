"""A recipe is a named, typed setting and the place where its values come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from smoothheads.objectives.method import Method
from smoothheads.training.config import RunConfig


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    summary: str
    source: str
    """Where the values come from, and which of them are only recalled or chosen here."""
    config: RunConfig
    members: int = 1
    """Networks to train apart, from as many seeds, and to join: an ensemble as the field means it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """What the methods are compared on: data, network and optimiser, at one sigma."""

    name: str
    network: str
    """The architecture in words."""
    run: RunConfig
    """One network with plain Gaussian training, at the cut where SOME has its heads."""
    source: str
    heads: int = 5
    """How many heads, or networks, an ensemble has."""
    two_draws: bool = True
    """Whether SOME and its controls have two draws at least, as the authors have it."""
    undo_mean: bool = False
    """Whether heads learn at a single network's rate: the mean over heads divides their gradient."""
    published: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Methods for which values are published, by structure; these recipes are listed."""

    @property
    def sigma(self) -> float:
        return self.run.train.sigma


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A base method's parameters for one network."""

    method: Method
    source: str
    train: dict[str, Any] = field(default_factory=dict)
    """Fields of TrainConfig in which it leaves the benchmark's."""
