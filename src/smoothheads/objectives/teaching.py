"""Circular teaching: every head judges which samples are easy, and its weights train the next head.

Equations (5) and (6) of the SOME paper, and remedies for classes that it gives up. Weights are constants: no
gradient flows through them. Shape letters: L heads, N images, C classes.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothheads.errors import ConfigError
from smoothheads.objectives.config import SCHEDULES, TeachingConfig
from smoothheads.objectives.pace import Pace

MAX_BALANCED_WEIGHT = 4.0
CLASS_MEMORY = 0.95  # of the running class statistics, per step


class Teaching:
    """Turns the heads' smoothed losses into the weight of every image in every head's loss.

    Once per step, `update` sees the smoothed losses of the whole batch and moves the thresholds and the
    running class statistics. Calling the object then gives the weights of any part of that batch.
    """

    def __init__(self, config: TeachingConfig, *, classes: int, epochs: int) -> None:
        if config.balance == "class" and classes < 2:
            raise ConfigError(
                f"teaching.balance = 'class' needs at least two classes, but the data set has {classes}: "
                "set it to 'none'."
            )
        self.config, self.classes = config, classes
        self.pace = Pace(config, classes=classes, epochs=epochs)
        self.losses = ClassStatistics(classes)
        self.weights = ClassStatistics(classes)
        self.lam_LC = torch.empty(0, classes)

    @property
    def needs_whole_batch(self) -> bool:
        """Says whether the weights of an image depend on the losses of the others in its batch."""
        config = self.config
        return config.pace not in SCHEDULES or config.balance == "class" or config.weights == "superloss"

    @torch.no_grad()
    def update(self, epoch: int, smoothed_LN: Tensor, labels_N: Tensor) -> None:
        """Moves lambda and the class statistics by one step.

        Args:
            epoch: the current epoch, counted from 1 (the paper's t).
            smoothed_LN: smoothed losses of the whole batch, over all processes (eq. 4).
        """
        if self.config.weights == "superloss":
            # The threshold of SuperLoss is m_c, the running mean loss of the class.
            self.losses.update(smoothed_LN, labels_N)
            self.lam_LC = self.losses.mean().to(smoothed_LN.dtype)
        else:
            # Move lambda, by its schedule or towards a quantile of the losses.
            self.lam_LC = self.pace.update(epoch, smoothed_LN, labels_N)
        # Update E[w] and E_c[w], where the weights will be divided by them.
        if self.config.weights == "superloss" or self.config.balance == "class":
            self.weights.update(self._unscaled(smoothed_LN, labels_N), labels_N)

    @torch.no_grad()
    def __call__(self, smoothed_LN: Tensor, labels_N: Tensor) -> Tensor:
        """Returns the weight [L, N] of every image in every head's loss."""
        weights_LN = self._unscaled(smoothed_LN, labels_N)
        if self.config.weights == "superloss":
            # Divide by E[w], so that the learning rate keeps its meaning.
            weights_LN = weights_LN / self.weights.overall().unsqueeze(1).to(weights_LN.dtype)
        if self.config.balance == "class":
            # w' = w E[w] / E_c[w]: every class keeps the same mean weight.
            overall_L1 = self.weights.overall().unsqueeze(1)
            ratio_LC = overall_L1 / self.weights.mean().clamp_min(1e-12)
            balanced_LN = weights_LN * ratio_LC[:, labels_N].to(weights_LN.dtype)
            weights_LN = balanced_LN.clamp_max(MAX_BALANCED_WEIGHT)
        return weights_LN

    def _unscaled(self, smoothed_LN: Tensor, labels_N: Tensor) -> Tensor:
        """Returns the weights before balancing and before SuperLoss is divided by its mean (eq. 5 and 6)."""
        config = self.config
        single = len(smoothed_LN) == 1 and config.shift != "self"  # then there is no teacher
        if single or config.weights == "uniform":
            return torch.ones_like(smoothed_LN)
        lam_LN = self.lam_LC[:, labels_N]
        if config.weights == "superloss":
            # Every head judges by b = (S - m_c) / s_c, and the teacher's weights train the student.
            deviation_LN = self.losses.deviation()[:, labels_N].to(smoothed_LN.dtype)
            return self._of_teachers(superloss_weight(smoothed_LN, lam_LN, deviation_LN))
        # Eq. 6: head k is weighted by what its teacher says about the image.
        judged, lam = self._of_teachers(smoothed_LN), self._of_teachers(lam_LN)
        # The authors' code takes the weight of a hard image from the student's own loss.
        graded = smoothed_LN if config.hard_weight_source == "student" else judged
        match config.weights:
            case "soft":
                full, partial = judged <= lam, logistic_weight(graded, lam)
            case "hard":
                full, partial = judged <= lam, torch.zeros_like(judged)
            case _:
                # The paper gives no formula for favouring hard samples: the mirror image about lambda.
                full, partial = judged >= lam, (1 + torch.exp(-lam)) * torch.sigmoid(graded - lam)
        # Eq. 5: weight 1 on one side of lambda, the partial weight on the other.
        weights_LN = torch.where(full, torch.ones_like(judged), partial)
        # The authors' code gives no weight at all to an image that lies on lambda.
        if config.tie == "zero":
            weights_LN[judged == lam] = 0
        return weights_LN

    def _of_teachers(self, values_LN: Tensor) -> Tensor:
        """Returns for every head the values of its teacher, the head before it (eq. 6) or itself."""
        return values_LN if self.config.shift == "self" else values_LN.roll(1, dims=0)

    def check_labels(self, counts_C: np.ndarray) -> None:
        """Raises ConfigError if weights are balanced by class and a class has no training image."""
        missing = np.flatnonzero(counts_C == 0).tolist()
        if self.config.balance == "class" and missing:
            raise ConfigError(
                "teaching.balance = 'class' needs images of every class, but the training images have none "
                f"of class {missing[0]}: add some, or set teaching.balance to 'none'."
            )

    def state_dict(self) -> dict[str, Tensor]:
        """Returns what must survive a resumed training."""
        pace = {f"pace.{key}": value for key, value in self.pace.state.items()}
        return pace | {"losses.sums": self.losses.sums_3LC, "weights.sums": self.weights.sums_3LC}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.losses.sums_3LC, self.weights.sums_3LC = state["losses.sums"], state["weights.sums"]
        self.pace.state = {k.removeprefix("pace."): v for k, v in state.items() if k.startswith("pace.")}


class ClassStatistics:
    """Running count, mean and standard deviation of a quantity per head and class.

    Sums decay with every step, so a class that is missing from a batch keeps its mean.
    """

    def __init__(self, classes: int) -> None:
        self.classes = classes
        self.sums_3LC = torch.empty(3, 0, classes, dtype=torch.float64)  # of 1, x and x^2

    def update(self, values_LN: Tensor, labels_N: Tensor) -> None:
        """Adds one batch of values [L, N] with the classes of its images."""
        if not self.sums_3LC.shape[1]:  # the first batch tells the number of heads
            self.sums_3LC = torch.zeros(3, len(values_LN), self.classes, dtype=torch.float64)
        # Sum 1, x and x^2 over the images of each class.
        values = values_LN.double()
        powers_3LN = torch.stack([torch.ones_like(values), values, values.square()])
        index = labels_N.expand(powers_3LN.shape)
        batch_3LC = powers_3LN.new_zeros(self.sums_3LC.shape).scatter_add_(2, index, powers_3LN)
        # Let the sums of earlier batches decay.
        self.sums_3LC = CLASS_MEMORY * self.sums_3LC.to(values.device) + batch_3LC

    def mean(self) -> Tensor:
        """Returns E_c[x]; a class without samples has the mean of all."""
        count, total = self.sums_3LC[:2]
        return torch.where(count > 0, total / count.clamp_min(1e-300), self.overall().unsqueeze(1))

    def deviation(self) -> Tensor:
        """Returns the standard deviation of every class, at least 1e-3."""
        # Var[x] = E[x^2] - E[x]^2.
        count, squares = self.sums_3LC[0], self.sums_3LC[2]
        variance = squares / count.clamp_min(1e-300) - self.mean().square()
        deviation_LC: Tensor = variance.clamp_min(1e-6).sqrt()
        return deviation_LC

    def overall(self) -> Tensor:
        """Returns E[x] over all classes."""
        count_L, total_L = self.sums_3LC[:2].sum(2)
        mean_L: Tensor = total_L / count_L.clamp_min(1e-300)
        return mean_L


def logistic_weight(smoothed: Tensor, lam: Tensor) -> Tensor:
    """Returns (1 + e^-lambda) / (1 + e^(S - lambda)) (eq. 5, S > lambda) in a form that cannot overflow."""
    return (1 + torch.exp(-lam)) * torch.sigmoid(lam - smoothed)


def superloss_weight(smoothed: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Returns exp(-W(max(-2/e, b) / 2)) with b = (S - mean) / deviation and Lambert's W.

    This is SuperLoss (Castells et al. 2020): e for the easiest samples, 1 at the mean, and towards 0 as the
    loss grows.
    """
    from scipy.special import lambertw

    # b / 2, cut off where Lambert's W has its branch point -1/e.
    half: Any = (0.5 * ((smoothed - mean) / deviation).clamp_min(-2 / math.e)).double().cpu().numpy()
    # At -1/e, where W is -1, rounding can make scipy return nan.
    weight = np.nan_to_num(np.exp(-lambertw(half).real), nan=math.e)
    return torch.from_numpy(weight).to(device=smoothed.device, dtype=smoothed.dtype)
