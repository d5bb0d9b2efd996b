"""Which noise samples a measurement looks at; nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from smoothheads.config.check import Count, Natural, Positive, check_fields


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    sigma: Positive
    samples: Count = 100
    """Noise samples of each image on which the heads are compared."""
    index_samples: Count = 10_000
    """Noise samples of the image at --index, whose log-probability gaps are shown."""
    noise: Literal["grid", "gaussian"] = "grid"
    """As in certification."""
    block: Count = 100
    """Noise samples per forward pass; part of the noise key."""
    seed: Natural = 0
    device: str = "cpu"
    threads: Count = 1

    def __post_init__(self) -> None:
        check_fields(self)
