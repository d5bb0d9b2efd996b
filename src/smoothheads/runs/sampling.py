"""Which noisy copies a measurement looks at; nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from smoothheads.config.check import at_least, positive


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    sigma: float
    draws: int = 10_000
    """Noisy copies of the image whose log-probability gaps are shown."""
    copies: int = 100
    """Noisy copies of each image of the subset, over which the heads are compared."""
    noise: Literal["grid", "gaussian"] = "grid"
    """As in certification."""
    block: int = 100
    """Noisy copies per forward pass; part of the noise key."""
    seed: int = 0
    device: str = "cpu"
    threads: int = 1

    def __post_init__(self) -> None:
        positive("sigma", self.sigma)
        for name in ("draws", "copies", "block", "threads"):
            at_least(name, getattr(self, name), 1)
        at_least("seed", self.seed, 0)
