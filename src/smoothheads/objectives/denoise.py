"""Training of a denoiser for all noise levels (FFDNet, Zhang, Zuo and Zhang 2018)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, ClassVar

from smoothheads.config.check import NotNegative, Positive
from smoothheads.errors import ConfigError
from smoothheads.objectives.losses import kl_divergence
from smoothheads.objectives.method import METHODS, Losses, Method, Step

if TYPE_CHECKING:
    from torch import Tensor, nn


@METHODS.register
@dataclass(frozen=True, kw_only=True, slots=True)
class Denoise(Method):
    """Mean squared error at random noise levels, one for every image; train.sigma is not used.

    The labels of the patches say what kind they are, for example mosaics of small images or crops of large
    ones. `tiles` and `classifiers` have one value for each kind.
    """

    name: ClassVar[str] = "denoise"
    trains_classifier: ClassVar[bool] = False
    max_sigma: Positive = 1.0
    """Largest noise level; levels are uniform between 0 and it."""
    offset: Positive = 0.05
    """The squared error of an image is divided by sigma + offset, because it grows about as fast as sigma."""
    tiles: tuple[int, ...] = ()
    """Side of the images in a mosaic, which are denoised one by one; 0 leaves a patch whole."""
    stability: NotNegative = 0.0
    """Weight of the stability loss of Salman et al. 2020: what a frozen classifier says about the denoised
    image is held to what it says about the clean one."""
    classifiers: tuple[str, ...] = ()
    """Frozen classifiers for the stability loss, as `package.module:function`; '' means none."""

    def check(self) -> None:
        if bool(self.stability) != any(self.classifiers):
            raise ConfigError("Set both stability and classifiers: the loss needs a weight and a classifier.")

    def __call__(self, step: Step) -> Losses:
        import torch

        losses_LN = torch.zeros(len(step.model.heads), len(step.images))  # type: ignore[arg-type]
        losses_LN = losses_LN.to(step.images.device)
        # Patches of one kind have one size, so that they go through the network together.
        for kind in sorted(set(step.labels.tolist())):
            chosen = step.labels == kind
            side = self.tiles[kind] if kind < len(self.tiles) else 0
            images = cut_tiles(step.images[chosen], side) if side else step.images[chosen]
            name = self.classifiers[kind] if kind < len(self.classifiers) else ""
            losses = self._losses(step, images, name)
            # The loss of a mosaic is the mean of its images.
            losses_LN[:, chosen] = losses.view(len(losses), int(chosen.sum()), -1).mean(2)
        return Losses(losses_LN, losses_LN.detach())

    def _losses(self, step: Step, images: Tensor, classifier: str) -> Tensor:
        """Returns the loss [L, N] of every head, each of which is a denoiser of its own."""
        import torch

        # Draw a noise level for every image, and its noise.
        sigma_N = self.max_sigma * torch.rand(len(images), generator=step.generator, device=images.device)
        noise = torch.randn(images.shape, generator=step.generator, device=images.device)
        noisy = images + sigma_N.view(-1, 1, 1, 1) * noise
        losses = []
        for denoiser in step.model.heads:  # type: ignore[union-attr]
            restored = denoiser(noisy, sigma_N)
            error_N = (restored.float() - images).square().mean((1, 2, 3)) / (sigma_N + self.offset)
            if classifier:
                judge = frozen(classifier)
                with torch.no_grad():
                    clean_LNC = judge(images).float()
                # KL(f(x) || f(D(x + delta))); the gradient flows through the classifier into the denoiser.
                denoised_LNC = judge(restored.clamp(0, 1)).float()
                divergence = kl_divergence(clean_LNC[0].softmax(-1), denoised_LNC[:1, None])
                error_N = error_N + self.stability * divergence[0, 0]
            losses.append(error_N)
        return torch.stack(losses)


def cut_tiles(images: Tensor, side: int) -> Tensor:
    """Returns the images [tiles * N, C, side, side] of mosaics, all of the first mosaic first."""
    import torch

    tiles = images.unfold(2, side, side).unfold(3, side, side)  # [N, C, rows, columns, side, side]
    return (
        tiles.permute(0, 2, 3, 1, 4, 5)
        .reshape(-1, images.shape[1], side, side)
        .contiguous(memory_format=torch.channels_last)
    )


@cache
def frozen(name: str) -> nn.Module:
    """Returns the classifier that `package.module:function` names, without gradients of its own."""
    import torch

    from smoothheads.models.adapters import adapt, load_object

    classifier = adapt(load_object(name))
    if not isinstance(classifier, torch.nn.Module):
        raise ConfigError(f"{name} is no module of PyTorch: the stability loss needs its gradient.")
    layout: nn.Module = classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return layout.requires_grad_(False).eval()
