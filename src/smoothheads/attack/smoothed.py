"""Projected gradient ascent on the loss of the smoothed classifier, ending on the grid of the images.

`smoothed` is SmoothAdv's attack (Salman et al. 2019): -log of the class's mean probability, under draws that
stay the same. `expected-ce` raises the mean cross-entropy under draws that are renewed at every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothheads.attack.settings import Loss
from smoothheads.errors import SoundnessError
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.attack import (
    FixedNoise,
    attack_loss,
    frozen,
    input_gradient,
    lengths,
    projected_ascent,
)
from smoothheads.objectives.losses import cross_entropy, draw_noise
from smoothheads.types import ENSEMBLE, Grid, Pixels


def ascend(
    model: MultiHead,
    image: Pixels,
    label: int,
    *,
    grid: Grid,
    sigma: float,
    radius: float,
    draws: int,
    steps: int,
    generator: torch.Generator,
    loss: Loss = "smoothed",
    aggregation: str = ENSEMBLE,
) -> NDArray[np.float64]:
    """The perturbation before it is put on the grid, in pixel units.

    Computed on the generator's device, where the model must be. Afterwards, also after an error, the model
    is as it was.
    """
    clean = torch.from_numpy(image).to(generator.device, torch.float32)[None] / grid.max_value
    labels_N = torch.tensor([label], device=clean.device)
    noises: Iterator[Tensor] = (draw_noise(clean, sigma, draws, generator) for _ in range(steps))
    if loss == "smoothed":
        noises = repeat(next(noises))

    def uphill(at: Tensor) -> Tensor:
        view = FixedNoise(model, next(noises), draws)

        def raised(images: Tensor) -> Tensor:
            logits_LMNC = decisive(view.logits(images), aggregation, model.ensemble_weights)
            if loss == "expected-ce":
                return cross_entropy(logits_LMNC, labels_N).mean((0, 1))
            return attack_loss(logits_LMNC, labels_N, "ensemble")

        return _unit(input_gradient(raised, at), generator)

    with frozen(model), torch.enable_grad():
        delta = projected_ascent(clean, radius, steps, uphill)
    perturbation: NDArray[np.float64] = delta[0].double().cpu().numpy()
    return perturbation


def _unit(gradient: Tensor, generator: torch.Generator) -> Tensor:
    """The image's gradient at length 1; a random direction where there is none."""
    if not bool(torch.isfinite(gradient).all()):
        raise SoundnessError(
            "a finite gradient", "NaN or infinity", "look for layers that overflow on noisy images"
        )
    if not bool(gradient.any()):
        gradient = torch.randn(gradient.shape, generator=generator, device=gradient.device)
    shown = gradient / gradient.abs().max()  # a confident network's gradient squared may be 0 in float32
    return shown / lengths(shown)


def decisive(logits_LMNC: Tensor, aggregation: str, weights_L: Tensor | None = None) -> Tensor:
    """Returns logits [1, M, N, C] whose argmax is the aggregation's prediction. For aggregations without a
    gradient (consensus, vote, margin) the mean of all heads stands in."""
    kind, _, number = aggregation.partition("-")
    if kind == "softmax":
        return logits_LMNC.log_softmax(-1).logsumexp(0, keepdim=True)
    if kind == "weighted" and weights_L is not None:
        return (weights_L.view(-1, 1, 1, 1) * logits_LMNC).sum(0, keepdim=True)
    if kind == "head":
        return logits_LMNC[int(number) - 1 : int(number)]
    part_LMNC = logits_LMNC[: int(number)] if kind == "prefix" else logits_LMNC
    return part_LMNC.mean(0, keepdim=True)
