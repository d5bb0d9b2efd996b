"""What is watched during training: accuracy under noise on held-out images, and how alike the heads are."""

from __future__ import annotations

import torch

from smoothheads import ranks, seeding
from smoothheads.data import Dataset, plain_batches
from smoothheads.models.aggregate import ensemble
from smoothheads.models.mode import borrowed_mode
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.diversity import cosines
from smoothheads.objectives.losses import add_noise


@torch.no_grad()
def noisy_accuracy(
    model: MultiHead, dataset: Dataset, *, sigma: float, seed: int, device: torch.device, batch: int = 256
) -> dict[str, float | list[float]]:
    """Accuracy of the ensemble and of each head under one noise draw per image, the same draws every time."""
    right_L = torch.zeros(len(model.heads), dtype=torch.long)
    right = 0
    generator = seeding.generator(seed, "validation", device=device)
    with borrowed_mode(model, training=False):
        for number, (images, labels, _) in enumerate(plain_batches(dataset, batch)):
            noisy = add_noise(images.to(device), sigma, 1, generator)
            if number % ranks.count() != ranks.rank():  # another rank's
                continue
            logits_LNC = model(noisy).float()
            target = labels.to(device)
            right_L += (logits_LNC.argmax(2) == target).sum(1).cpu()
            right += int((ensemble(logits_LNC).argmax(1) == target).sum())
    right_L, right = ranks.total(right_L), int(ranks.total(torch.tensor(right)))
    return {"accuracy": right / len(dataset), "head_accuracy": (right_L / len(dataset)).tolist()}


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
