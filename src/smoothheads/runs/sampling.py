"""Which noise samples a measurement looks at; nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from smoothheads.config.check import Count, Natural, Positive, check_fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """Noise samples that a measurement draws."""

    sigma: Positive
    """Standard deviation of the noise per pixel (default: that of the training)."""
    samples: Count = 100
    """Noise samples of each image on which the heads are compared."""
    index_samples: Count = 10_000
    """Noise samples of the image at --index, whose log-probability margins are shown."""
    noise: Literal["grid", "gaussian"] = "grid"
    """The noise law, as in certification."""
    block: Count = 100
    """Noise samples per forward pass; part of the noise key."""
    seed: Natural = 0
    """Random seed of the noise."""
    device: str = "cpu"
    """Device that evaluates the networks; cuda is untested."""
    threads: Count = 1
    """Threads of torch."""

    def __post_init__(self) -> None:
        check_fields(self)
