"""What a network votes on a data set under noise: soft labels, and how easy each image is."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional

from smoothheads import ranks, seeding
from smoothheads.data import Dataset
from smoothheads.data.loader import plain_batches
from smoothheads.errors import ConfigError
from smoothheads.models.aggregate import ensemble
from smoothheads.objectives.attack import frozen

BLOCK = 100  # draws that are drawn together; part of the noise key


@torch.no_grad()
def class_frequencies(
    model: nn.Module,
    dataset: Dataset,
    *,
    sigma: float,
    draws: int,
    seed: int,
    device: torch.device | str = "cpu",
    batch: int = 256,
    on_images: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Share of each image's draws on which the ensemble answers each class: float32 [images, C].

    An image's noise depends on the seed and its position alone, not on `batch` (draws per forward).
    Ranks share the images out, and all get the whole answer.
    `on_images` is told how many of how many images are done.
    """
    counts_NC = torch.zeros(len(dataset), dataset.info.classes)
    with frozen(model):
        size = max(1, batch // min(BLOCK, draws))
        for images, _, positions in plain_batches(dataset, size, first=ranks.rank(), every=ranks.count()):
            for block, start in enumerate(range(0, draws, BLOCK)):
                noise = _noise(seed, positions, block, (min(BLOCK, draws - start), *images.shape[1:]))
                noisy = (images.unsqueeze(1) + sigma * noise).flatten(0, 1).to(device)
                logits_LNC = model(noisy)
                if logits_LNC.shape[-1] != dataset.info.classes:
                    expected = f"a network of {dataset.info.classes} classes, as the images have"
                    raise ConfigError(expected, str(logits_LNC.shape[-1]), "choose one for these images")
                votes_NM = ensemble(logits_LNC.float()).argmax(-1).view(noise.shape[:2]).cpu()
                counts_NC[positions] += functional.one_hot(votes_NM, counts_NC.shape[1]).sum(1)
            if on_images:
                on_images(int(positions[-1]) + 1, len(dataset))
    return ranks.total(counts_NC) / draws


def _noise(seed: int, positions: Tensor, block: int, shape: tuple[int, ...]) -> Tensor:
    generators = [seeding.generator(seed, "soft-labels", int(position), block) for position in positions]
    return torch.stack([torch.randn(shape, generator=generator) for generator in generators])


def hit_fractions(frequencies_NC: Tensor, dataset: Dataset) -> Tensor:
    """Share of each image's draws that got its label [images]."""
    labels_N = torch.tensor(dataset.labels)
    return frequencies_NC.gather(1, labels_N.unsqueeze(1)).squeeze(1)
