"""The threshold lambda that separates easy from hard samples, and how it moves during training.

Every pace gives each head one threshold per class, lambda [L, C]. The schedules of the paper depend on the
epoch alone and give all heads and classes the same value. The others read lambda off the smoothed losses.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from smoothheads.objectives.config import SCHEDULES, TeachingConfig

MEMORY = 0.9  # of a quantile's exponential moving average, per step
FLOOR = math.log(1 / 0.9)


class Pace:
    """Moves lambda [L, C] once per step, for a training of `epochs` epochs."""

    def __init__(self, config: TeachingConfig, *, classes: int, epochs: int) -> None:
        self.config, self.classes, self.epochs = config, classes, epochs
        self.state: dict[str, Tensor] = {}
        """What the pace remembers between steps; part of a resumable training state."""

    @torch.no_grad()
    def update(self, epoch: int, smoothed_LN: Tensor, labels_N: Tensor) -> Tensor:
        """Returns lambda [L, C] for a batch of detached smoothed losses; epochs count from 1."""
        config, heads = self.config, len(smoothed_LN)
        if config.pace == "quantile":
            lam_L = self._quantile(epoch, smoothed_LN)
            return lam_L.to(smoothed_LN.dtype).unsqueeze(1).expand(-1, self.classes)
        if config.pace in SCHEDULES:
            lam = scheduled_lambda(config, epoch=epoch, epochs=self.epochs, classes=self.classes)
            return smoothed_LN.new_full((heads, self.classes), lam)
        return self._class_quantiles(epoch, smoothed_LN, labels_N).to(smoothed_LN.dtype)

    def _quantile(self, epoch: int, smoothed_LN: Tensor) -> Tensor:
        """Returns lambda [L], below which a fraction of each head's recent losses lies, over all classes.

        It moves slowly, within [ln(1 / 0.9), ln C]. In the first of several epochs it stays at ln C, as the
        paper's schedule does.
        """
        heads, device, ceiling = len(smoothed_LN), smoothed_LN.device, math.log(self.classes)
        # The first step tells the number of heads; a restored state is on the CPU.
        recent_LB = self.state.get("recent", smoothed_LN.new_empty(heads, 0)).to(device)
        lam_L = self.state.get("lambda", smoothed_LN.new_full((heads,), ceiling)).to(device)
        # Keep the last losses of every head.
        recent_LB = torch.cat([recent_LB, smoothed_LN], dim=1)[:, -self.config.window :]
        if epoch > 1 or self.epochs == 1:
            # Move lambda towards the quantile, between -log 0.9 and ln C.
            fraction = scheduled_fraction(self.config, epoch, self.epochs)
            target_L = torch.quantile(recent_LB, fraction, dim=1).clamp(FLOOR, ceiling)
            lam_L = MEMORY * lam_L + (1 - MEMORY) * target_L
        self.state = {"recent": recent_LB, "lambda": lam_L}
        return lam_L

    def _class_quantiles(self, epoch: int, smoothed_LN: Tensor, labels_N: Tensor) -> Tensor:
        """Returns lambda [L, C], below which a fraction of each class's recent losses lies, so that no class
        is hard as a whole.

        Under `class-quantile` the fraction follows the settings; under `own-accuracy` it is the head's own
        running mean of exp(-S), its mean probability of the true class under noise. There is no ceiling: a
        class whose losses all lie above ln C keeps its easy samples.
        """
        probability_L = torch.exp(-smoothed_LN).mean(1)
        window, device = self.config.class_window, smoothed_LN.device
        # Losses are NaN where nothing was seen yet.
        unseen_LCB = smoothed_LN.new_full((len(smoothed_LN), self.classes, window), math.nan)
        recent_LCB = self.state.get("recent", unseen_LCB).to(device, copy=True)
        # Append every sample's loss to those of its class, and forget the oldest.
        for label in sorted(set(labels_N.tolist())):
            losses = torch.cat([recent_LCB[:, label], smoothed_LN[:, labels_N == label]], dim=1)
            recent_LCB[:, label] = losses[:, -window:]
        # Update the running mean probability of the true class.
        mean_L = self.state.get("probability", probability_L).to(device)
        mean_L = MEMORY * mean_L + (1 - MEMORY) * probability_L
        self.state = {"recent": recent_LCB, "probability": mean_L}
        # Take the q-quantile of every class's losses, with a q of every head's own or that of the schedule.
        if self.config.pace == "own-accuracy":
            heads = zip(recent_LCB, mean_L, strict=True)
            lam_LC = torch.stack([recent_CB.nanquantile(q, dim=1) for recent_CB, q in heads])
        else:
            lam_LC = recent_LCB.nanquantile(scheduled_fraction(self.config, epoch, self.epochs), dim=2)
        # A class that was never seen has no losses yet; its threshold is not used in this step.
        return lam_LC.nan_to_num(nan=math.log(self.classes))


def scheduled_fraction(config: TeachingConfig, epoch: int, epochs: int) -> float:
    """Returns the fraction of easy samples under the quantile paces, which is linear in the epoch."""
    u = (epoch - 1) / max(1, epochs - 1)
    return (1 - u) * config.quantile_first + u * config.quantile_last


def scheduled_lambda(config: TeachingConfig, *, epoch: int, epochs: int, classes: int) -> float:
    """Returns lambda of `epoch` (counted from 1), which falls from ln C to its last value.

    The log10 shape is -log10(a t + b), written as an interpolation so that its ends are exact.
    """
    last = config.lambda_last
    if config.pace == "fixed" or epochs == 1 or epoch == epochs:
        return last
    first = math.log(classes) if config.lambda_first is None else config.lambda_first
    if epoch == 1:
        return first
    # u runs from 0 in the first epoch to 1 in the last.
    u = (epoch - 1) / (epochs - 1)
    if config.pace == "log10":
        return -math.log10((1 - u) * 10**-first + u * 10**-last)
    return (1 - u) * first + u * last
