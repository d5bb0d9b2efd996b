"""How different the heads are under noise, gathered block by block: memory does not grow with the samples.

Shape letters: L heads, M noise samples of one image, C classes, R = 1 + L for the ensemble and each head.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

BIN = 0.1
LIMIT = 50.0  # margins beyond it, odds of e^50, fall into the outermost bins


class Moments:
    """Running mean and variance over the first axis, in float64 (Chan et al. 1983)."""

    def __init__(self) -> None:
        self.count = 0
        self.mean: NDArray[np.float64] = np.zeros(())
        self._squares: NDArray[np.float64] = np.zeros(())

    def add(self, values: NDArray[np.float64]) -> None:
        count = self.count + len(values)
        mean = values.mean(0)
        step = mean - self.mean
        squares = np.square(values - mean).sum(0)
        self._squares = self._squares + squares + np.square(step) * self.count * len(values) / count
        self.mean = self.mean + step * len(values) / count
        self.count = count

    @property
    def variance(self) -> NDArray[np.float64]:
        """The unbiased variance; NaN for fewer than two values."""
        return self._squares / (self.count - 1) if self.count > 1 else np.full_like(self._squares, np.nan)


class Spread:
    """Pairwise disagreement, correlation of errors and variances over noise samples of many images."""

    def __init__(self, heads: int) -> None:
        self.heads, self.images, self.samples = heads, 0, 0
        self._correct_R = np.zeros(1 + heads)
        self._wrong_together_LL = np.zeros((heads, heads))
        self._differing = 0.0
        self._variances = np.zeros(2)

    def add_image(self, blocks: Iterable[Tensor], label: int) -> None:
        """Adds all blocks of logits [L, M, C] of one image."""
        moments = Moments()
        for logits_LMC in blocks:
            logits_RMC = with_ensemble(logits_LMC)
            # Errors, jointly for every pair of heads.
            wrong_RM = (logits_RMC.argmax(-1) != label).double().numpy()
            samples = wrong_RM.shape[1]
            self.samples += samples
            self._correct_R += samples - wrong_RM.sum(1)
            self._wrong_together_LL += wrong_RM[1:] @ wrong_RM[1:].T
            if self.heads > 1:
                self._differing += samples * disagreement(logits_LMC)
            moments.add(logits_RMC.transpose(0, 1).numpy())
        # Variance of the logits over the noise, averaged over classes (and heads).
        ensemble_C, heads_LC = moments.variance[0], moments.variance[1:]
        self._variances += ensemble_C.mean(), heads_LC.mean()
        self.images += 1

    @property
    def accuracies(self) -> NDArray[np.float64]:
        """Fraction of samples classified correctly, by the ensemble and by each head."""
        return self._correct_R / self.samples

    @property
    def disagreement(self) -> float | None:
        """The fraction of samples on which two heads differ; None for a single head."""
        return self._differing / self.samples if self.heads > 1 else None

    @property
    def error_correlation(self) -> float | None:
        """The mean correlation of two heads' errors; None if it is not defined."""
        # Phi coefficient: covariance of two Bernoulli variables over their standard deviations.
        together = self._wrong_together_LL / self.samples
        wrong_L = together.diagonal()
        scale_L = np.sqrt(wrong_L * (1 - wrong_L))
        first, second = np.triu_indices(self.heads, 1)
        usable = scale_L[first] * scale_L[second] > 0
        first, second = first[usable], second[usable]
        if not len(first):
            return None
        covariance = together[first, second] - wrong_L[first] * wrong_L[second]
        return float(np.mean(covariance / (scale_L[first] * scale_L[second])))

    @property
    def variance_ratio(self) -> float | None:
        """The variance of the ensemble's logits over the heads' own; None if they never move."""
        ensemble, heads = self._variances
        return float(ensemble / heads) if self.heads > 1 and heads > 0 else None

    def to_dict(self) -> dict[str, Any]:
        accuracy, *heads = self.accuracies.tolist()
        return {
            "images": self.images,
            "samples": self.samples,
            "accuracy": accuracy,
            "head_accuracy": heads,
            "disagreement": self.disagreement,
            "error_correlation": self.error_correlation,
            "variance_ratio": self.variance_ratio,
        }


class Margins:
    """Log-probability margins of one image, label against the best other class: positive is correct.

    `counts_RB[r, b]` samples have a margin of the ensemble (r = 0) or of head r in bin b.
    """

    def __init__(self, heads: int) -> None:
        self.names = ("ensemble", *(f"head-{k}" for k in range(1, heads + 1)))
        self.edges = np.round(np.arange(-LIMIT, LIMIT + BIN / 2, BIN), 6)
        self.counts_RB = np.zeros((1 + heads, len(self.edges) - 1), dtype=np.int64)
        self.moments = Moments()
        self._correct_R = np.zeros(1 + heads)

    def add(self, logits_LMC: Tensor, label: int) -> None:
        margins_RM = log_probability_margins(with_ensemble(logits_LMC), label).numpy()
        self.moments.add(margins_RM.T)
        self._correct_R += (margins_RM > 0).sum(1)
        inside = np.clip(margins_RM, -LIMIT, math.nextafter(LIMIT, 0))
        self.counts_RB += np.stack([np.histogram(row, self.edges)[0] for row in inside])

    def rebinned(self, bins: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Returns edges and counts of at most `bins` wider bins over the range that any curve uses.

        One edge is 0 where both signs occur, so that no bin mixes correct and wrong samples.
        """
        low, high = self._used()
        zero, width = self.counts_RB.shape[1] // 2, -(-(high - low) // (bins - 1))
        starts = np.arange(zero - -(-(zero - low) // width) * width, high, width)
        counts_RB = [self.counts_RB[:, max(0, start) : start + width].sum(1) for start in starts]
        return BIN * np.append(starts, starts[-1] + width) - LIMIT, np.stack(counts_RB, axis=1)

    def _used(self) -> tuple[int, int]:
        used = np.flatnonzero(self.counts_RB.any(0))
        return int(used[0]), int(used[-1]) + 1

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values, with the bins from the first to the last that any curve uses."""
        low, high = self._used()
        means, stds = self.moments.mean, np.sqrt(self.moments.variance)
        curves = {
            name: {
                "correct": float(self._correct_R[r] / self.moments.count),
                "mean": float(means[r]),
                "std": None if np.isnan(stds[r]) else float(stds[r]),
                "counts": self.counts_RB[r, low:high].tolist(),
            }
            for r, name in enumerate(self.names)
        }
        return {"samples": self.moments.count, "edges": self.edges[low : high + 1].tolist(), "curves": curves}


def with_ensemble(logits_LMC: Tensor) -> Tensor:
    """Returns [R, M, C] in float64: the mean over the heads, then the heads."""
    logits = logits_LMC.double()
    return torch.cat([logits.mean(0, keepdim=True), logits])


def disagreement(logits_LMC: Tensor) -> float:
    """Returns the fraction of samples on which two heads differ, over all pairs."""
    answers_LM = logits_LMC.argmax(-1)
    first, second = torch.triu_indices(len(answers_LM), len(answers_LM), offset=1)
    return float((answers_LM[first] != answers_LM[second]).float().mean())


def log_probability_margins(logits_RMC: Tensor, label: int) -> Tensor:
    """Returns log p_label - max over other classes of log p [R, M]; positive where correct."""
    # The normaliser of the softmax cancels, so differences of logits do.
    others_RMC = logits_RMC.clone()
    others_RMC[..., label] = -torch.inf
    return logits_RMC[..., label] - others_RMC.amax(-1)
