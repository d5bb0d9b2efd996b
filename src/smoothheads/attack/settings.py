"""How hard to attack. Nothing heavy is imported here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from smoothheads.config.check import Count, Natural, between, check_fields, positive
from smoothheads.errors import ConfigError

Loss: TypeAlias = Literal["smoothed", "expected-ce"]

_OUTSIDE = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)  # in units of sigma


@dataclass(frozen=True, kw_only=True, slots=True)
class AttackSettings:
    steps: Count = 20
    """Gradient steps of one attack."""
    draws: Count = 32
    """Draws of noise behind each step."""
    n: Count = 1000
    """Fresh noisy samples that judge an attacked image (PREDICT)."""
    alpha: float = 0.001
    """Probability that a judgement is wrong, per attacked image."""
    losses: tuple[Loss, ...] = ("smoothed", "expected-ce")
    """smoothed: SmoothAdv's attack, -log of the mean probability at fixed draws; expected-ce: the mean
    cross-entropy, draws renewed at every step. Each is tried in turn."""
    radii: tuple[float, ...] | None = None
    """Radii outside the certified ball to attack at (default: from a quarter of sigma to 6 sigma)."""
    halvings: Natural = 4
    """How often the distance of a successful attack is halved towards the certified radius."""
    seed: Natural = 0
    """Random seed of the attacks and of the noise that judges them."""

    def __post_init__(self) -> None:
        check_fields(self)
        between("alpha", self.alpha, 0, 0.5)
        for radius in self.radii or ():
            positive("every radius", radius)
        if not self.losses or len(set(self.losses)) < len(self.losses):
            raise ConfigError(f"Name at least one loss, and none twice, not {self.losses!r}.")

    def outside(self, sigma: float) -> tuple[float, ...]:
        """Returns the radii to attack at, growing."""
        chosen = tuple(factor * sigma for factor in _OUTSIDE) if self.radii is None else self.radii
        return tuple(sorted(set(chosen)))
