"""Running means over an epoch, kept in plain numbers so that they survive a resume exactly."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from smoothheads.objectives.objective import StepTerms


@dataclass(slots=True)
class Meter:
    """Image-weighted sums of what a step reports; lists hold one number per head."""

    images: int = 0
    sums: dict[str, list[float]] = field(default_factory=dict)

    def add(self, terms: StepTerms, images: int) -> None:
        self.images += images
        self._add("head_loss", terms.head_losses_L, images)
        self._add("lambda", terms.lam_L, images)
        self._add("easy_fraction", terms.easy_fraction_L, images)
        self._add("mean_weight", terms.mean_weight_L, images)
        self._add("effective_share", terms.effective_share_L, images)

    def add_loss(self, total: float, images: int) -> None:
        """The whole step's loss, cosine constraint included."""
        self._add("loss", torch.tensor([total], dtype=torch.float64), images)

    def means(self) -> dict[str, float | list[float]]:
        """Means so far: the loss as one number, the rest as one per head."""
        out: dict[str, float | list[float]] = {}
        for name, values in self.sums.items():
            means = [value / self.images for value in values]
            out[name] = means[0] if name == "loss" else means
        return out

    def _add(self, name: str, values: Tensor, images: int) -> None:
        new = [images * value for value in values.tolist()]
        old = self.sums.get(name, [0.0] * len(new))
        self.sums[name] = [a + b for a, b in zip(old, new, strict=True)]
