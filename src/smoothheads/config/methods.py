"""The base training methods and their parameters: one frozen dataclass each, told apart by `name`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothheads.config.check import at_least


@dataclass(frozen=True, kw_only=True, slots=True)
class Gaussian:
    """Cohen et al. 2019: cross-entropy on noisy copies."""

    name: ClassVar[str] = "gaussian"
    draws: int = 1
    """Noisy copies of an image in one step (the paper's m)."""

    def __post_init__(self) -> None:
        at_least("draws", self.draws, 1)


Method = Gaussian
