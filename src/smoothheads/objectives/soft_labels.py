"""A network's votes on a data set under noise: soft labels, and how easy each image is."""

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
    """Returns the fraction of each image's draws on which the ensemble gives each class: float32 [images, C].

    The network votes in evaluation mode. An image's noise depends on the seed and its position alone, not on
    `batch`, the noisy samples per forward pass. Ranks share the images, and all get the whole result.
    `on_images` receives how many of how many images are done.
    """
    counts_NC = torch.zeros(len(dataset), dataset.info.classes)
    with frozen(model):
        size = max(1, batch // min(BLOCK, draws))
        for images, _, positions in plain_batches(dataset, size, first=ranks.rank(), every=ranks.count()):
            # Draw an image's noise in blocks of 100.
            for block, start in enumerate(range(0, draws, BLOCK)):
                # Each image has a generator of its own, whose draws no other image can shift.
                shape = (min(BLOCK, draws - start), *images.shape[1:])
                keys = [("soft-labels", int(position), block) for position in positions]
                generators = [seeding.generator(seed, *key) for key in keys]
                noise = torch.stack([torch.randn(shape, generator=each) for each in generators])
                # Classify all draws of these images at once.
                noisy = (images.unsqueeze(1) + sigma * noise).flatten(0, 1).to(device)
                logits_LNC = model(noisy)
                if logits_LNC.shape[-1] != dataset.info.classes:
                    raise ConfigError(
                        f"The network has {logits_LNC.shape[-1]} classes, but the images have "
                        f"{dataset.info.classes}: choose a network for these images."
                    )
                # Count the ensemble's class of every draw.
                votes_NM = ensemble(logits_LNC.float()).argmax(-1).view(noise.shape[:2]).cpu()
                counts_NC[positions] += functional.one_hot(votes_NM, counts_NC.shape[1]).sum(1)
            if on_images:
                on_images(int(positions[-1]) + 1, len(dataset))
    # Every rank has counted its own images; the others are 0 there.
    return ranks.total(counts_NC) / draws
