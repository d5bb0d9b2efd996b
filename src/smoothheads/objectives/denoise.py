"""Training of a denoiser for all noise levels (FFDNet, Zhang, Zuo and Zhang 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothheads.config.check import Positive
from smoothheads.objectives.method import METHODS, Losses, Method, Step


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Denoise(Method):
    """Mean squared error at random noise levels, one for every image; train.sigma is not used."""

    name: ClassVar[str] = "denoise"
    trains_classifier: ClassVar[bool] = False
    max_sigma: Positive = 1.0
    """Largest noise level; levels are uniform between 0 and it."""
    offset: Positive = 0.05
    """The squared error of an image is divided by sigma + offset, because it grows about as fast as sigma."""

    def __call__(self, step: Step) -> Losses:
        import torch

        images, device = step.images, step.images.device
        # Draw a noise level for every image, and its noise.
        sigma_N = self.max_sigma * torch.rand(len(images), generator=step.generator, device=device)
        noise = torch.randn(images.shape, generator=step.generator, device=device)
        noisy = images + sigma_N.view(-1, 1, 1, 1) * noise
        # Every head is a denoiser of its own.
        errors = []
        for denoiser in step.model.heads:  # type: ignore[union-attr]
            restored = denoiser(noisy, sigma_N).float()
            errors.append((restored - images).square().mean((1, 2, 3)) / (sigma_N + self.offset))
        errors_LN = torch.stack(errors)
        return Losses(errors_LN, errors_LN)
