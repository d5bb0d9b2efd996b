"""Gradient attacks on the smoothed classifier, and the way from a real direction to an image on the grid.

`smoothed` is SmoothAdv's attack (Salman et al. 2019): it raises -log of the class's mean probability,
under draws of noise that stay the same. `expected-ce` raises the mean cross-entropy under draws that are
renewed at every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from smoothheads.attack.settings import Loss
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.models.multihead import MultiHead
from smoothheads.noise.base import check_image
from smoothheads.objectives.attack import (
    FixedNoise,
    attack_loss,
    frozen,
    input_gradient,
    l2_norm,
    projected_ascent,
)
from smoothheads.objectives.losses import cross_entropy, draw_noise
from smoothheads.types import ENSEMBLE, Grid, Pixels

Real = NDArray[np.floating[Any]]
_Integers = NDArray[np.int64]

_FARTHEST = 2.0**40  # beyond this scale a direction's largest pixel has long met the border
_BISECTIONS = 60


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
    """Returns an adversarial perturbation before it is put on the grid, in pixel units.

    It is computed on the generator's device, where the model must be. Afterwards, also after an error, the
    model's mode and parameters are as they were.

    Args:
        image: Grid integers [channels, height, width].
        label: The class y whose probability is lowered.
        radius: The l2 radius epsilon of the attack.
        draws: The number of noise draws m behind each step.
        steps: The number of gradient steps T.
        aggregation: How the heads become one classifier.
    """
    # The image in pixel units, as the network sees it.
    clean = torch.from_numpy(image).to(generator.device, torch.float32)[None] / grid.max_value
    labels_N = torch.tensor([label], device=clean.device)

    # SmoothAdv keeps its m draws for all steps; expected-ce draws anew at every step.
    noises: Iterator[Tensor] = (draw_noise(clean, sigma, draws, generator) for _ in range(steps))
    if loss == "smoothed":
        noises = repeat(next(noises))

    def direction(at: Tensor) -> Tensor:
        view = FixedNoise(model, next(noises), draws)

        def raised(images: Tensor) -> Tensor:
            logits_LMNC = decisive(view.logits(images), aggregation, model.ensemble_weights)
            if loss == "expected-ce":  # mean over draws of -log p_y
                return cross_entropy(logits_LMNC, labels_N).mean((0, 1))
            return attack_loss(logits_LMNC, labels_N, "ensemble")  # -log of the mean over draws of p_y

        return _unit(input_gradient(raised, at), generator)

    # Each step goes along the normalised gradient and is projected to the ball and to valid pixels.
    with frozen(model), torch.enable_grad():
        delta = projected_ascent(clean, radius, steps, direction)
    perturbation: NDArray[np.float64] = delta[0].double().cpu().numpy()
    return perturbation


def _unit(gradient: Tensor, generator: torch.Generator) -> Tensor:
    """Returns the image's gradient at length 1; a random direction where there is none."""
    if not bool(torch.isfinite(gradient).all()):
        raise SoundnessError(
            "The gradient of the attack is not finite; look for layers that overflow on noisy images."
        )
    # On a plateau any direction is as good as another.
    if not bool(gradient.any()):
        gradient = torch.randn(gradient.shape, generator=generator, device=gradient.device)
    # A confident network's gradient squared may be 0 in float32, so divide by its largest entry first.
    scaled = gradient / gradient.abs().max()
    return scaled / l2_norm(scaled)


def decisive(logits_LMNC: Tensor, aggregation: str, weights_L: Tensor | None = None) -> Tensor:
    """Returns logits [1, M, N, C] whose argmax is the aggregation's prediction.

    For aggregations without a gradient (consensus, vote, margin) the mean of all heads stands in.
    """
    kind, _, number = aggregation.partition("-")
    # softmax: the logarithm of the heads' summed probabilities
    if kind == "softmax":
        return logits_LMNC.log_softmax(-1).logsumexp(0, keepdim=True)
    if kind == "weighted" and weights_L is not None:
        return (weights_L.view(-1, 1, 1, 1) * logits_LMNC).sum(0, keepdim=True)
    if kind == "head":
        return logits_LMNC[int(number) - 1 : int(number)]
    # prefix-K: the mean of the first K heads; everything else: of all heads
    part_LMNC = logits_LMNC[: int(number)] if kind == "prefix" else logits_LMNC
    return part_LMNC.mean(0, keepdim=True)


def squared_distance(a: Pixels, b: Pixels) -> int:
    """Returns sum (a - b)^2 of grid integers, which `squared_grid_budget` bounds."""
    return int(np.square(a.astype(np.int64) - b.astype(np.int64)).sum())


def move(image: Pixels, direction: Real, budget: int, grid: Grid) -> Pixels:
    """Returns the image moved along a direction as far as a squared budget allows.

    sum (m' - m)^2 <= budget holds exactly, every pixel stays in 0..q and none moves against the direction;
    nor could any take one more step along it.

    Args:
        direction: The direction, whose length does not matter.
    """
    check_image(image, grid)
    if direction.shape != image.shape or not bool(np.isfinite(direction).all()):
        raise SoundnessError(
            f"The direction must be finite and of shape {image.shape} (its shape is {direction.shape}); look "
            "for NaN in the network's gradient."
        )
    if budget < 0:
        raise ConfigError(f"The squared budget is {budget}; attack at a positive radius.")
    longest = float(np.abs(direction).max())
    if longest == 0:
        return image.copy()
    # How many steps every pixel has to the border in its direction.
    weight = np.abs(direction.astype(np.float64)) / longest
    here = image.astype(np.int64)
    room = np.where(direction > 0, grid.max_value - here, np.where(direction < 0, here, 0))

    def at(scale: float) -> _Integers:
        steps: _Integers = np.minimum(np.rint(scale * weight), room).astype(np.int64)
        return steps

    # The longest rounded multiple of the direction that fits: double the scale until it no longer fits, then
    # bisect. Of all steps with a squared length of at most its own, it goes farthest along the direction.
    low, high = 0.0, 1.0
    while int(np.square(at(high)).sum()) <= budget and high < _FARTHEST:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if int(np.square(at(middle)).sum()) <= budget else (low, middle)
    # Then single steps for what is left.
    steps = _fill(at(low), weight, room, budget)
    return (here + np.where(direction > 0, steps, -steps)).astype(np.uint8)


def _fill(steps: _Integers, weight: Real, room: _Integers, budget: int) -> _Integers:
    """Spends the rest of the budget on single steps, best gain for its cost first."""
    flat, gain, most = steps.ravel().copy(), weight.ravel(), room.ravel()
    while True:
        left = budget - int(np.square(flat).sum())
        cost = 2 * flat + 1  # (s + 1)^2 - s^2
        open_ = np.flatnonzero((flat < most) & (cost <= left))
        if not open_.size:
            return flat.reshape(steps.shape)
        # The best gain for its cost first, as many as the rest allows at once.
        order = open_[np.argsort(-gain[open_] / cost[open_], kind="stable")]
        flat[order[np.cumsum(cost[order]) <= left]] += 1
