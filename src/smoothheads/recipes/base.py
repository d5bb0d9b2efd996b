"""A recipe is a named, typed setting and the place where its values come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from smoothheads.config import Method, RunConfig

SIGMAS = (0.25, 0.5, 1.0)

Data = Literal["mnist", "cifar10", "imagenet"]


@dataclass(frozen=True, slots=True)
class Recipe:
    name: str
    summary: str
    source: str
    """Where the values come from, and which of them are only recalled or chosen here."""
    config: RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """What the methods are compared on: data, network and optimiser, at one sigma."""

    data: Data
    arch: str
    network: str
    """The architecture in words."""
    heads: int
    """How many heads, or networks, an ensemble has."""
    cut: str
    run: RunConfig
    """One network with plain Gaussian training."""
    source: str

    @property
    def sigma(self) -> float:
        return self.run.train.sigma


@dataclass(frozen=True, kw_only=True, slots=True)
class Setting:
    """A base method's published parameters for one network."""

    method: Method
    source: str
    train: dict[str, Any] = field(default_factory=dict)
    """Fields of TrainConfig in which it leaves the benchmark's."""
