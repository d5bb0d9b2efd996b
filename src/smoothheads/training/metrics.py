"""Measurements during training: running means, accuracy under noise on held-out images, similar heads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from smoothheads import ranks, seeding
from smoothheads.data import Dataset
from smoothheads.data.loader import plain_batches
from smoothheads.models.aggregate import ensemble
from smoothheads.models.multihead import MultiHead, temporary_mode
from smoothheads.objectives.losses import add_noise
from smoothheads.objectives.objective import cosines


@dataclass(slots=True)
class Meter:
    """Sums of an epoch's metrics over its images, in plain numbers so that they survive a resume exactly.

    Lists hold one number per head.
    """

    images: int = 0
    sums: dict[str, list[float]] = field(default_factory=dict)

    def add(self, values: Mapping[str, list[float]], images: int) -> None:
        """Adds the mean values of so many images."""
        self.images += images
        for name, new in values.items():
            old = self.sums.get(name, [0.0] * len(new))
            self.sums[name] = [a + images * b for a, b in zip(old, new, strict=True)]

    def means(self) -> dict[str, float | list[float]]:
        """Returns the means so far: the loss as one number, the others as one per head."""
        out: dict[str, float | list[float]] = {}
        for name, values in self.sums.items():
            means = [value / self.images for value in values]
            out[name] = means[0] if name == "loss" else means
        return out


@torch.no_grad()
def noisy_logits(
    model: MultiHead,
    dataset: Dataset,
    generator: torch.Generator,
    *,
    sigma: float,
    draws: int = 1,
    batch: int = 256,
    first: int = 0,
    every: int = 1,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yields logits [L, M * N, C] and labels [M * N] of every batch of the images under noise.

    The network is in evaluation mode; the images come in order and without augmentation.

    Args:
        generator: source of the noise; the results are on its device.
        first: only each `every`-th batch from this one on is computed; its noise stays the same.
        every: see `first`.
    """
    with temporary_mode(model, training=False):
        for number, (images, labels, _) in enumerate(plain_batches(dataset, batch)):
            noisy = add_noise(images.to(generator.device), sigma, draws, generator)
            if number % every == first:
                yield model(noisy).float(), labels.to(generator.device).repeat(draws)


@torch.no_grad()
def noisy_accuracy(
    model: MultiHead, dataset: Dataset, *, sigma: float, seed: int, device: torch.device
) -> dict[str, float | int | list[float]]:
    """Returns the accuracy of the ensemble and of each head under one noise draw per image, and how many
    classes the ensemble gives to any image.

    The draws are the same every time. Ranks share the batches, and all get the result.
    """
    hits_L = torch.zeros(len(model.heads), dtype=torch.long)
    hits = torch.zeros((), dtype=torch.long)
    predicted_C = torch.zeros(dataset.info.classes, dtype=torch.long)
    generator = seeding.generator(seed, "validation", device=device)
    own = {"first": ranks.rank(), "every": ranks.count()}
    # Each rank counts hits on its part of the batches.
    for logits_LNC, labels_N in noisy_logits(model, dataset, generator, sigma=sigma, **own):
        hits_L += (logits_LNC.argmax(2) == labels_N).sum(1).cpu()
        prediction_N = ensemble(logits_LNC).argmax(1)
        hits += (prediction_N == labels_N).sum().cpu()
        predicted_C += prediction_N.cpu().bincount(minlength=len(predicted_C))
    # All ranks add up their counts.
    accuracy_L = ranks.total(hits_L) / len(dataset)
    return {
        "accuracy": int(ranks.total(hits)) / len(dataset),
        "head_accuracy": accuracy_L.tolist(),
        "predicted_classes": int((ranks.total(predicted_C) > 0).sum()),
    }


@torch.no_grad()
def denoising_psnr(
    model: MultiHead,
    dataset: Dataset,
    *,
    seed: int,
    device: torch.device,
    sigmas: Sequence[float] = (0.1, 0.25, 0.5, 1.0),
) -> dict[str, float]:
    """Returns the mean peak signal-to-noise ratio in dB of the first head's denoised images, by sigma."""
    totals = dict.fromkeys(sigmas, 0.0)
    with temporary_mode(model, training=False):
        for sigma in sigmas:
            generator = seeding.generator(seed, "validation", device=device)
            for images, _, _ in plain_batches(dataset, 64):
                clean = images.to(device)
                noisy = clean + sigma * torch.randn(clean.shape, generator=generator, device=device)
                error_N = (model.heads[0](noisy, sigma) - clean).square().mean((1, 2, 3))
                # PSNR = -10 log10(mean squared error), for pixels in [0, 1].
                totals[sigma] += float(-10 * error_N.log10().sum())
    return {f"{sigma:g}": round(total / len(dataset), 2) for sigma, total in totals.items()}


@torch.no_grad()
def head_cosines(model: MultiHead) -> dict[str, float]:
    """Returns the mean cosine over pairs of heads, of all parameters and of the weight tensors alone.

    They differ by design: BatchNorm scales start equal in all heads and dominate the first.
    """
    if len(model.heads) == 1:
        return {}
    return {
        "cosine_all": float(cosines(model.head_parameters()).mean()),
        "cosine_weights": float(cosines(model.head_weights()).mean()),
    }
