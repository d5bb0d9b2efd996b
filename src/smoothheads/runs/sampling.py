"""Which noise samples a measurement looks at; nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from smoothheads.config.check import at_least, positive


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    sigma: float
    samples: int = 100
    """Noise samples of each image on which the heads are compared."""
    index_samples: int = 10_000
    """Noise samples of the image at --index, whose log-probability gaps are shown."""
    noise: Literal["grid", "gaussian"] = "grid"
    """As in certification."""
    block: int = 100
    """Noise samples per forward pass; part of the noise key."""
    seed: int = 0
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)
        for name in ("samples", "index_samples", "block", "threads"):
            at_least(name, getattr(self, name), 1)
        at_least("seed", self.seed, 0)
