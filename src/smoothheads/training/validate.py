"""What is watched during training: accuracy under noise on held-out images, and how alike the heads are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from smoothheads import ranks, seeding
from smoothheads.data import Dataset
from smoothheads.data.loader import plain_batches
from smoothheads.models.aggregate import ensemble
from smoothheads.models.multihead import MultiHead, temporary_mode
from smoothheads.objectives.diversity import cosines
from smoothheads.objectives.losses import add_noise


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
    """Logits [L, M * N, C] of `draws` M noise draws of N images, and their labels, on the generator's device:
    of every batch, or of each `every`-th from the `first` on, whose noise is the same."""
    with temporary_mode(model, training=False):
        for number, (images, labels, _) in enumerate(plain_batches(dataset, batch)):
            noisy = add_noise(images.to(generator.device), sigma, draws, generator)
            if number % every == first:
                yield model(noisy).float(), labels.to(generator.device).repeat(draws)


@torch.no_grad()
def noisy_accuracy(
    model: MultiHead, dataset: Dataset, *, sigma: float, seed: int, device: torch.device
) -> dict[str, float | list[float]]:
    """Accuracy of the ensemble and of each head under one noise draw per image, the same draws every time."""
    right_L = torch.zeros(len(model.heads), dtype=torch.long)
    right = 0
    generator = seeding.generator(seed, "validation", device=device)
    ours = {"first": ranks.rank(), "every": ranks.count()}
    for logits_LNC, labels_N in noisy_logits(model, dataset, generator, sigma=sigma, **ours):
        right_L += (logits_LNC.argmax(2) == labels_N).sum(1).cpu()
        right += int((ensemble(logits_LNC).argmax(1) == labels_N).sum())
    right_L, right = ranks.total(right_L), int(ranks.total(torch.tensor(right)))
    return {"accuracy": right / len(dataset), "head_accuracy": (right_L / len(dataset)).tolist()}


@torch.no_grad()
def denoising_psnr(
    model: MultiHead,
    dataset: Dataset,
    *,
    seed: int,
    device: torch.device,
    sigmas: Sequence[float] = (0.1, 0.25, 0.5, 1.0),
) -> dict[str, float]:
    """Returns the mean peak signal-to-noise ratio in dB of the first head, by noise level."""
    totals = dict.fromkeys(sigmas, 0.0)
    with temporary_mode(model, training=False):
        for sigma in sigmas:
            generator = seeding.generator(seed, "validation", device=device)
            for images, _, _ in plain_batches(dataset, 64):
                clean = images.to(device)
                noisy = clean + sigma * torch.randn(clean.shape, generator=generator, device=device)
                error_N = (model.heads[0](noisy, sigma) - clean).square().mean((1, 2, 3))
                totals[sigma] += float(-10 * error_N.log10().sum())
    return {f"{sigma:g}": round(total / len(dataset), 2) for sigma, total in totals.items()}


@torch.no_grad()
def head_cosines(model: MultiHead) -> dict[str, float]:
    """Mean cosine over pairs of heads, of all parameters and of the weight tensors alone.

    They differ by design: BatchNorm scales start equal in all heads and dominate the first.
    """
    if len(model.heads) == 1:
        return {}
    return {
        "cosine_all": float(cosines(model.head_parameters()).mean()),
        "cosine_weights": float(cosines(model.head_weights()).mean()),
    }
