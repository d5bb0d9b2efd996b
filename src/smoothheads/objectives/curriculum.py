"""Which images an epoch shows under the ACR-targeted recipe: it optimises ACR, not robustness."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri
from torch import Tensor

from smoothheads.config import AcrTargeted
from smoothheads.errors import TrainingError


class Curriculum:
    """Call `refresh` at the start of every epoch, then take the epoch's `order`."""

    def __init__(self, config: AcrTargeted, images: int) -> None:
        self.config = config
        self.weights_N = torch.ones(images, dtype=torch.float64)

    def refresh(self, epoch: int, measure: Callable[[int], Tensor]) -> None:
        """`measure(draws)` gives each training image's share of right answers under that many draws; it is
        called only when images are due to be dropped or weighted anew."""
        since = epoch - 1 - self.config.start
        if since < 0 or since % self.config.every:
            return
        if since == 0:
            self.weights_N = (measure(self.config.keep_draws) >= self.config.keep).to(torch.float64)
            self._refuse_an_empty_epoch()
        shares_N = measure(self.config.weigh_draws).numpy()
        weights_N = torch.from_numpy(radius_weights(shares_N, self.config.weigh_draws))
        self.weights_N = torch.where(self.weights_N > 0, weights_N, 0.0)

    def order(self, epoch: int, generator: torch.Generator) -> Tensor | None:
        """Positions of an epoch, drawn with replacement; none before the recipe starts."""
        if epoch <= self.config.start:
            return None
        return torch.multinomial(self.weights_N, len(self.weights_N), replacement=True, generator=generator)

    def state_dict(self) -> dict[str, Tensor]:
        return {"weights": self.weights_N.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.weights_N = state["weights"].clone()

    def _refuse_an_empty_epoch(self) -> None:
        if not self.weights_N.any():
            raise TrainingError(
                f"images answered rightly on a share of {self.config.keep:g} of the draws",
                f"none after {self.config.start} epochs",
                "lower keep or start later",
            )


def radius_weights(
    shares: NDArray[np.floating], draws: int, *, least: float = 0.75, alpha: float = 0.1
) -> NDArray[np.float64]:
    """Certified radius, in units of sigma, of `shares` of right answers out of `draws`, raised to `least`."""
    counts = np.floor(np.clip(shares, least, 1.0).astype(np.float64) * draws + 1e-6)
    lower: NDArray[np.float64] = betaincinv(counts, draws - counts + 1, alpha)
    return np.asarray(ndtri(lower), dtype=np.float64)
