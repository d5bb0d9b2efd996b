"""Denoised smoothing: a denoiser in front of a classifier that was trained without noise.

`denoised` puts any denoiser in front of any classifier. `Denoiser` is one of our own and follows FFDNet
(Zhang, Zuo and Zhang 2018): it works on images folded to half their side, and a map of the noise level is one
more input channel. Residual blocks take the place of batch normalisation, and most of them work on features
that are folded once or twice more, which costs little and widens the view: strong noise needs many pixels.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, overload

import torch
from torch import Tensor, nn

from smoothheads import device
from smoothheads.errors import ConfigError
from smoothheads.models.adapters import BlackBox, Floats, PlainFunction, adapt
from smoothheads.models.multihead import MultiHead

DenoiserFunction: TypeAlias = Callable[[Tensor, float], Tensor]


WIDTHS = (64, 96, 128)  # channels at a half, a quarter and an eighth of the image's side
BLOCKS = (5, 1, 1)  # residual blocks on each of these levels
MAX_SIGMA = 1.0
KEEP = 0.1
"""Fraction of the noisy image that is kept behind a `Denoiser`. Training for the smallest squared error blurs
details that classifiers need. The value was chosen on images that no table shows (docs/any-classifier.md)."""


class ResidualBlock(nn.Module):
    """Adds two 3x3 convolutions to its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        # The block starts as the identity, so that training is stable without batch normalisation.
        nn.init.zeros_(self.conv2.weight)

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = features + self.conv2(torch.relu(self.conv1(features)))
        return out


class Level(nn.Module):
    """Residual blocks at one resolution, with the coarser levels in their middle.

    Args:
        widths: channels of this level and of the coarser ones.
        blocks: numbers of residual blocks of the same levels.
    """

    def __init__(self, widths: Sequence[int], blocks: Sequence[int]) -> None:
        super().__init__()
        width, *coarser = widths
        before = blocks[0] // 2
        self.before = nn.Sequential(*(ResidualBlock(width) for _ in range(before)))
        self.after = nn.Sequential(*(ResidualBlock(width) for _ in range(blocks[0] - before)))
        self.coarser: nn.Module | None = None
        if coarser:
            self.down = nn.Conv2d(4 * width, coarser[0], 1)
            self.coarser = Level(coarser, blocks[1:])
            self.up = nn.Conv2d(coarser[0], 4 * width, 1)
            nn.init.zeros_(self.up.weight)  # it too adds nothing at first

    def forward(self, features: Tensor) -> Tensor:
        features = self.before(features)
        if self.coarser is not None:
            # The coarser levels see a wide surrounding at little cost and add what they find.
            folded = nn.functional.pixel_unshuffle(features, 2)
            features = features + nn.functional.pixel_shuffle(self.up(self.coarser(self.down(folded))), 2)
        out: Tensor = self.after(features)
        return out


class Denoiser(nn.Module):
    """Estimates the clean image from an image with Gaussian noise of a known standard deviation.

    Args:
        image_channels: channels of the images, 3 for colour.
        widths: channels at a half, a quarter, ... of the image's side.
        blocks: numbers of residual blocks on the same levels.
    """

    def __init__(
        self, image_channels: int = 3, widths: Sequence[int] = WIDTHS, blocks: Sequence[int] = BLOCKS
    ) -> None:
        super().__init__()
        self.multiple = 2 ** len(widths)
        self.first = nn.Conv2d(4 * image_channels + 1, widths[0], 3, padding=1)
        self.levels = Level(widths, blocks)
        self.last = nn.Conv2d(widths[0], 4 * image_channels, 3, padding=1)

    def forward(self, images: Tensor, sigma: float | Tensor = 0.25) -> Tensor:
        """Returns the denoised images [N, C, H, W], which lie in [0, 1] except in training mode.

        Args:
            images: images in [0, 1] plus noise, not clipped.
            sigma: standard deviation of the noise, one number or one for each image [N], from 0 to 1.
        """
        height, width = images.shape[-2:]
        level = torch.as_tensor(sigma, dtype=images.dtype, device=images.device)
        # Every level folds its input to half the side: repeat the last rows and columns until that works.
        right, bottom = -width % self.multiple, -height % self.multiple
        padded = nn.functional.pad(images, (0, right, 0, bottom), mode="replicate")
        folded = nn.functional.pixel_unshuffle(padded, 2)
        # A constant channel, made without the batch size, so that converted networks take any batch.
        level_map = level.view(-1, 1, 1, 1) * torch.ones_like(folded[:, :1])
        features = self.levels(self.first(torch.cat([folded, level_map], dim=1)))
        noise = nn.functional.pixel_shuffle(self.last(torch.relu(features)), 2)[..., :height, :width]
        # The network predicts the noise, which is taken away.
        clean = images - noise
        return clean if self.training else clean.clamp(0, 1)

    def split(self, cut: str) -> tuple[nn.Module, nn.Module]:
        """Returns an empty trunk and the denoiser: a denoiser is always one whole network."""
        if cut != "input":
            raise ConfigError(f"A denoiser has no cut {cut!r}: set model.cut to 'input'.")
        return nn.Identity(), self


class DenoisedInput(nn.Module):
    """Denoises a batch of noisy images and, if asked, resizes them: the first layer of a denoised classifier.

    Args:
        denoiser: maps noisy images and their noise level to images in [0, 1]. If it is a module, its weights
            are part of the classifier.
        sigma: standard deviation of the noise that certification adds (the paper's sigma).
        size: side in pixels that the classifier wants; None leaves the images as they are.
        keep: fraction of the noisy image that is mixed into the denoised one.
    """

    def __init__(
        self, denoiser: DenoiserFunction, sigma: float, size: int | None = None, keep: float = 0.0
    ) -> None:
        super().__init__()
        self.denoiser, self.sigma, self.size, self.keep = denoiser, sigma, size, keep
        # deepinv's networks know the noise level, but leave [0, 1] a little.
        self.clamp = any(kind.__module__.startswith("deepinv.") for kind in type(denoiser).__mro__)
        # A function is told from others by its code, a module by its weights.
        function = None if isinstance(denoiser, nn.Module) else PlainFunction(denoiser)  # type: ignore[arg-type]
        self.name = function.name if function else type(denoiser).__name__
        self.function_hash = function.fingerprint() if function else ""
        self.notes = function.notes if function else ()

    def forward(self, images: Tensor) -> Tensor:
        clean = self.denoiser(images, self.sigma)
        if self.clamp:
            clean = clean.clamp(0, 1)
        if not torch._C._get_tracing_state():  # a conversion needs no checks
            _check_denoised(clean, images)
        if self.keep:
            clean = ((1 - self.keep) * clean + self.keep * images).clamp(0, 1)
        if self.size is not None:
            size = (self.size, self.size)
            clean = nn.functional.interpolate(clean, size, mode="bicubic", antialias=True).clamp(0, 1)
        return clean

    def denoise_array(self, images: Floats, threads: int) -> Floats:
        """Returns denoised images for a classifier that is not one of PyTorch."""
        with torch.inference_mode(), device.threads(threads):
            clean: Floats = self(torch.from_numpy(images)).numpy()
        return clean

    def describe(self) -> dict[str, Any]:
        """Returns what tells this denoiser from any other, for the manifest."""
        digest = self.function_hash or weights_hash(self.denoiser)  # type: ignore[arg-type]
        facts = {"name": self.name, "sha256": digest, "sigma": self.sigma, "size": self.size}
        return facts | ({"keep": self.keep} if self.keep else {})


@overload
def denoised(
    classifier: nn.Module,
    denoiser: DenoiserFunction | Any,
    sigma: float,
    *,
    size: int | None = None,
    keep: float | None = None,
) -> MultiHead: ...


@overload
def denoised(
    classifier: Any,
    denoiser: DenoiserFunction | Any,
    sigma: float,
    *,
    size: int | None = None,
    keep: float | None = None,
) -> MultiHead | BlackBox: ...


def denoised(
    classifier: Any,
    denoiser: DenoiserFunction | Any,
    sigma: float,
    *,
    size: int | None = None,
    keep: float | None = None,
) -> MultiHead | BlackBox:
    """Returns a classifier that denoises its input first (denoised smoothing, Salman et al. 2020).

    Certify the result like any other network. The denoiser, resizing and normalisation are part of the base
    classifier, so the certificate holds whatever they do.

    Args:
        classifier: any classifier of images in [0, 1] that was trained without noise: what `adapt` takes.
        denoiser: a function `denoiser(images, sigma)` that returns images in [0, 1], such as a `Denoiser` or
            a deepinv network; or a diffusers pipeline with `unet` and `scheduler`, or the pair of both.
        sigma: standard deviation of the noise that certification adds (the paper's sigma).
        size: side in pixels that the classifier wants, if it differs from that of the images.
        keep: fraction of the noisy image that is mixed into the denoised one, because classifiers suffer
            more from blur than from a little noise; 0.1 by default for a `Denoiser`, 0 for others.
    """
    if not 0 < sigma < math.inf:
        raise ConfigError(f"sigma is {sigma}, but a denoiser needs a positive noise level.")
    if hasattr(denoiser, "unet") and hasattr(denoiser, "scheduler"):
        denoiser = (denoiser.unet, denoiser.scheduler)
    if isinstance(denoiser, tuple):
        denoiser = DiffusionDenoiser(*denoiser)
        denoiser.time_step(sigma)  # refuses a noise level that the scheduler does not have
    elif not callable(denoiser):
        raise ConfigError(
            f"A denoiser must be a function of images and sigma, not {type(denoiser).__name__}: for a "
            "diffusers network pass the pair (unet, scheduler)."
        )
    elif isinstance(denoiser, Denoiser) and sigma > MAX_SIGMA:
        raise ConfigError(f"This denoiser knows noise levels up to {MAX_SIGMA:g}, not {sigma:g}.")
    usual = KEEP if isinstance(denoiser, Denoiser) else 0.0
    keep = usual if keep is None else keep
    if not 0 <= keep < 1:
        raise ConfigError(f"keep is {keep:g}; choose a fraction from 0, which denoises fully, to below 1.")
    network, front = adapt(classifier), DenoisedInput(denoiser, sigma, size, keep).eval()
    if isinstance(network, BlackBox):
        if size is not None:
            raise ConfigError("size is for modules of PyTorch: resize the images in front of the classifier.")
        behind = copy.copy(network)
        behind.front, behind.notes = front, network.notes + front.notes
        return behind
    composed = MultiHead(network.trunk, list(network.heads), nn.Sequential(front, network.normalize))
    if network.config is not None and isinstance(denoiser, Denoiser) and size is None and keep == usual:
        composed.config = replace(network.config, denoiser_sigma=sigma)  # can be saved as a checkpoint
    composed.weigh(network.ensemble_weights)
    composed.notes = network.notes + front.notes
    return composed.eval()


def describe_parts(model: MultiHead) -> dict[str, Any]:
    """Returns names and hashes of a denoiser and the classifier behind it, or {} without a denoiser."""
    layers = getattr(model.normalize, "_modules", {})
    if not isinstance(front := layers.get("0"), DenoisedInput):
        return {}
    classifier = MultiHead(model.trunk, list(model.heads), layers["1"])
    return {"denoiser": front.describe(), "classifier": {"sha256": weights_hash(classifier)}}


def weights_hash(module: nn.Module) -> str:
    """Returns a hash of the names and values of all weights and buffers."""
    digest = hashlib.sha256()
    for name, value in module.state_dict().items():
        digest.update(name.encode() + value.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


class DiffusionDenoiser(nn.Module):
    """Denoises in one step with a diffusion network (Carlini et al. 2023).

    The noise is that of the images: none is added here, and the time step follows from sigma.

    Args:
        unet: network of diffusers, for example a UNet2DModel, called as `unet(images, time_step)`.
        scheduler: its noise scheduler, of which `alphas_cumprod` and `config.prediction_type` are used.
    """

    def __init__(self, unet: nn.Module, scheduler: Any) -> None:
        super().__init__()
        alphas = getattr(scheduler, "alphas_cumprod", None)
        if alphas is None:
            raise ConfigError(
                f"The scheduler {type(scheduler).__name__} has no alphas_cumprod: pass one with discrete "
                "noise levels, such as diffusers' DDPMScheduler."
            )
        self.unet = unet
        self.register_buffer("alphas_cumprod", torch.as_tensor(alphas, dtype=torch.float32))
        self.prediction = getattr(getattr(scheduler, "config", None), "prediction_type", "epsilon")
        if self.prediction not in ("epsilon", "v_prediction", "sample"):
            raise ConfigError(
                f"The scheduler predicts {self.prediction!r}: epsilon, v_prediction and sample are supported."
            )

    alphas_cumprod: Tensor

    def time_step(self, sigma: float) -> int:
        """Returns the time step of the noise level sigma, argmin |alphas_cumprod - 1 / (1 + 4 sigma^2)|.

        Images in [0, 1] become 2 x - 1, so their noise doubles: it is sqrt((1 - a) / a) = 2 sigma.
        """
        t = int((self.alphas_cumprod - 1 / (1 + 4 * sigma**2)).abs().argmin())
        levels = ((1 - self.alphas_cumprod) / self.alphas_cumprod).sqrt() / 2
        if abs(float(levels[t]) - sigma) > 0.05 * sigma:
            raise ConfigError(
                f"This diffusion network knows noise levels from {float(levels.min()):.3g} to "
                f"{float(levels.max()):.3g}, of which none is within 5 % of sigma = {sigma:g}."
            )
        return t

    def forward(self, images: Tensor, sigma: float) -> Tensor:
        """Returns the denoised images in [0, 1]."""
        t = self.time_step(sigma)
        a: Tensor = self.alphas_cumprod[t]
        # Scale the noisy image to what the diffusion process looks like at time t.
        x_t = a.sqrt() * (2 * images - 1)
        output = self.unet(x_t, t)
        predicted: Tensor = getattr(output, "sample", output)
        predicted = predicted[0] if isinstance(predicted, tuple) else predicted
        # Networks that predict the variance too return it in a second half of the channels.
        predicted = predicted[:, : images.shape[1]]
        if self.prediction == "epsilon":
            x_0 = (x_t - (1 - a).sqrt() * predicted) / a.sqrt()
        elif self.prediction == "v_prediction":
            x_0 = a.sqrt() * x_t - (1 - a).sqrt() * predicted
        else:
            x_0 = predicted
        clean: Tensor = (x_0 + 1) / 2
        return clean.clamp(0, 1)


def _check_denoised(clean: Any, images: Tensor) -> None:
    """Raises ConfigError if a denoiser returned something else than images in [0, 1]."""
    if not isinstance(clean, Tensor) or clean.shape != images.shape:
        got = tuple(clean.shape) if isinstance(clean, Tensor) else type(clean).__name__
        raise ConfigError(f"The denoiser returned {got} for images of shape {tuple(images.shape)}.")
    low, high = (float(end) for end in clean.detach().aminmax())
    if not (low >= -1e-3 and high <= 1 + 1e-3):  # also for nan
        raise ConfigError(
            f"The denoiser returned values from {low:.3g} to {high:.3g}, but images lie in [0, 1]: "
            "clamp its output."
        )
