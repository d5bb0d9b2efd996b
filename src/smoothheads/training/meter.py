"""Running means over an epoch, kept in plain numbers so that they survive a resume exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(slots=True)
class Meter:
    """Image-weighted sums of what a step reports; lists hold one number per head."""

    images: int = 0
    sums: dict[str, list[float]] = field(default_factory=dict)

    def add(self, values: Mapping[str, list[float]], images: int) -> None:
        """What was seen on so many images; they count as done once `images` is raised."""
        for name, new in values.items():
            old = self.sums.get(name, [0.0] * len(new))
            self.sums[name] = [a + images * b for a, b in zip(old, new, strict=True)]

    def means(self) -> dict[str, float | list[float]]:
        """Means so far: the loss as one number, the rest as one per head."""
        out: dict[str, float | list[float]] = {}
        for name, values in self.sums.items():
            means = [value / self.images for value in values]
            out[name] = means[0] if name == "loss" else means
        return out
