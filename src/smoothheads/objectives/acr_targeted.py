"""The recipe of Sun et al. 2025, which optimises ACR, not robustness: its loss, and which images it shows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothheads.config.check import Count, Natural, Positive, at_least
from smoothheads.errors import ConfigError, TrainingError
from smoothheads.objectives.attack import frozen, l2_norm, normalize_l2
from smoothheads.objectives.losses import cross_entropy, draw_noise, forward_heads, repeat_draws
from smoothheads.objectives.method import METHODS, Losses, Method, Step

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from torch import Tensor


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class AcrTargeted(Method):
    """Sun et al. 2025: optimises ACR, not robustness. It drops hard images and repeats easy ones."""

    name: ClassVar[str] = "acr-targeted"
    draws: int = 4
    start: Natural = 60
    """Epochs of plain Gaussian training before anything else happens (E_t; 70 at sigma 0.5)."""
    keep: float = 0.5
    """Then images correct on less than this fraction of draws are dropped (p_t; 0.4 at sigma 0.5 and 1)."""
    keep_draws: Count = 100
    """Draws by which that is judged."""
    every: Count = 10
    """Epochs between two re-weightings of the images."""
    weigh_draws: int = 16
    """Draws by which images are weighted, by a radius that three quarters correct have from 14 draws on."""
    step_size: Positive = 0.25
    """Length of a step of the attack on the noise (0.5 at sigma 1)."""
    steps: Count = 3
    """Steps of the attack (T; 6 at sigma 0.5, 4 at sigma 1)."""

    def check(self) -> None:
        at_least("weigh_draws", self.weigh_draws, 14)
        if not 0 <= self.keep <= 1:
            raise ConfigError(f"keep is a fraction of the draws: set it from 0 to 1, not to {self.keep:g}.")

    def curriculum(self, images: int) -> RadiusCurriculum:
        return RadiusCurriculum(self, images)

    def __call__(self, step: Step) -> Losses:
        # Draw m noises per image.
        images = repeat_draws(step.images, self.draws)
        noise = draw_noise(step.images, step.sigma, self.draws, step.generator)
        # After epoch E_t the noise is adversarial; until then, this is Gaussian training.
        if step.epoch > self.start:
            with frozen(step.model):
                noise = self._harder_noise(step, images, noise)
        # The mean cross-entropy over the draws.
        logits_LMNC = forward_heads(step.model, images + noise, self.draws)
        smoothed_LN = cross_entropy(logits_LMNC, step.labels).mean(1)
        return Losses(smoothed_LN, smoothed_LN)

    def _harder_noise(self, step: Step, images: Tensor, noise: Tensor) -> Tensor:
        """Returns noise of the same length that raises the loss; a draw stops once the ensemble is wrong."""
        import torch

        moving, radius = noise, l2_norm(noise)
        for _ in range(self.steps):
            # The gradient of every draw's loss with respect to its noise.
            point = moving.detach().requires_grad_()
            logits_LMNC = forward_heads(step.model, images + point, self.draws)
            loss = cross_entropy(logits_LMNC, step.labels).mean(0).sum()
            (gradient,) = torch.autograd.grad(loss, point)
            # A step along the gradient, back onto the sphere of the drawn noise's length.
            moved = moving + self.step_size * normalize_l2(gradient)
            # A draw that the ensemble gets wrong stays where it is.
            wrong_MN = logits_LMNC.mean(0).argmax(-1) != step.labels
            moving = torch.where(wrong_MN.view_as(radius), moving, radius * normalize_l2(moved))
        return moving


class RadiusCurriculum:
    """Drops the images that are mostly wrong, and repeats the others by the radius that they have."""

    def __init__(self, method: AcrTargeted, images: int) -> None:
        import torch

        self.method = method
        self.weights_N = torch.ones(images, dtype=torch.float64)

    def refresh(self, epoch: int, hit_fractions: Callable[[int], Tensor]) -> None:
        """Measures the images only when they are due to be dropped or weighted anew."""
        import torch

        since = epoch - 1 - self.method.start
        if since < 0 or since % self.method.every:
            return
        if since == 0:
            # Once, after E_t epochs: drop what is correct on less than p_t of the draws.
            kept_N = hit_fractions(self.method.keep_draws) >= self.method.keep
            self.weights_N = kept_N.to(torch.float64)
            if not kept_N.any():
                raise TrainingError(
                    f"No image is classified correctly on a fraction of {self.method.keep:g} of the draws "
                    f"after {self.method.start} epochs: lower keep or start later."
                )
        # Then and every so many epochs: weigh the others by the radius that a few draws certify.
        fractions_N = hit_fractions(self.method.weigh_draws).numpy()
        weights_N = torch.from_numpy(radius_weights(fractions_N, self.method.weigh_draws))
        self.weights_N = torch.where(self.weights_N > 0, weights_N, 0.0)

    def order(self, epoch: int, generator: torch.Generator) -> Tensor | None:
        """Returns the positions of an epoch, drawn with replacement; None before the recipe starts."""
        import torch

        if epoch <= self.method.start:
            return None
        # An image is drawn in proportion to its weight, and dropped ones never.
        return torch.multinomial(self.weights_N, len(self.weights_N), replacement=True, generator=generator)

    def state_dict(self) -> dict[str, Tensor]:
        return {"weights": self.weights_N.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.weights_N = state["weights"].clone()


def radius_weights(fractions: NDArray[np.floating], draws: int) -> NDArray[np.float64]:
    """Returns the radius, in units of sigma, that a fraction of correct predictions out of `draws` certifies
    at alpha = 0.1; fractions below three quarters count as that."""
    import numpy as np
    from scipy.special import betaincinv, ndtri

    # Phi^-1 of the Clopper-Pearson lower bound.
    counts = np.floor(np.clip(fractions, 0.75, 1.0).astype(np.float64) * draws + 1e-6)
    lower: NDArray[np.float64] = betaincinv(counts, draws - counts + 1, 0.1)
    return np.asarray(ndtri(lower), dtype=np.float64)
