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
LIMIT = 50.0  # gaps beyond it, odds of e^50, fall into the outermost bins


class Moments:
    """Mean and variance over the first axis of all that was added, in float64."""

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
        """Unbiased; NaN for fewer than two values."""
        return self._squares / (self.count - 1) if self.count > 1 else np.full_like(self._squares, np.nan)


class Spread:
    """Pairwise disagreement, correlation of errors and variances over noise samples of many images."""

    def __init__(self, heads: int) -> None:
        self.heads, self.images, self.samples = heads, 0, 0
        self._right_R = np.zeros(1 + heads)
        self._wrong_together_LL = np.zeros((heads, heads))
        self._differing = 0.0
        self._variances = np.zeros(2)

    def add_image(self, blocks: Iterable[Tensor], label: int) -> None:
        """All blocks of logits [L, M, C] of one image."""
        moments = Moments()
        for logits_LMC in blocks:
            logits_RMC = with_ensemble(logits_LMC)
            wrong_RM = (logits_RMC.argmax(-1) != label).double().numpy()
            samples = wrong_RM.shape[1]
            self.samples += samples
            self._right_R += samples - wrong_RM.sum(1)
            self._wrong_together_LL += wrong_RM[1:] @ wrong_RM[1:].T
            if self.heads > 1:
                self._differing += samples * disagreement(logits_LMC)
            moments.add(logits_RMC.transpose(0, 1).numpy())
        ensemble_C, heads_LC = moments.variance[0], moments.variance[1:]
        self._variances += ensemble_C.mean(), heads_LC.mean()
        self.images += 1

    @property
    def accuracies(self) -> NDArray[np.float64]:
        """Share of samples answered rightly, by the ensemble and by each head."""
        return self._right_R / self.samples

    @property
    def disagreement(self) -> float | None:
        """None for a single head, like all that compares heads."""
        return self._differing / self.samples if self.heads > 1 else None

    @property
    def error_correlation(self) -> float | None:
        """None too if no pair of heads has errors and right answers both."""
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
        """None too for one sample per image, or logits that noise does not move."""
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


class Gaps:
    """Log-probability gaps, label against the best other class, of one image: positive is right.

    `counts_RB[r, b]` samples have a gap of the ensemble (r = 0) or of head r in bin b.
    """

    def __init__(self, heads: int) -> None:
        self.names = ("ensemble", *(f"head-{k}" for k in range(1, heads + 1)))
        self.edges = np.round(np.arange(-LIMIT, LIMIT + BIN / 2, BIN), 6)
        self.counts_RB = np.zeros((1 + heads, len(self.edges) - 1), dtype=np.int64)
        self.moments = Moments()
        self._right_R = np.zeros(1 + heads)

    def add(self, logits_LMC: Tensor, label: int) -> None:
        gaps_RM = log_probability_gaps(with_ensemble(logits_LMC), label).numpy()
        self.moments.add(gaps_RM.T)
        self._right_R += (gaps_RM > 0).sum(1)
        inside = np.clip(gaps_RM, -LIMIT, math.nextafter(LIMIT, 0))
        self.counts_RB += np.stack([np.histogram(row, self.edges)[0] for row in inside])

    def rebinned(self, bins: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """Edges and counts of at most `bins` wider bins over the range that any curve uses; one edge is 0
        where both signs occur, so that no bin mixes right and wrong."""
        low, high = self._used()
        zero, width = self.counts_RB.shape[1] // 2, -(-(high - low) // (bins - 1))
        starts = np.arange(zero - -(-(zero - low) // width) * width, high, width)
        counts_RB = [self.counts_RB[:, max(0, start) : start + width].sum(1) for start in starts]
        return BIN * np.append(starts, starts[-1] + width) - LIMIT, np.stack(counts_RB, axis=1)

    def _used(self) -> tuple[int, int]:
        used = np.flatnonzero(self.counts_RB.any(0))
        return int(used[0]), int(used[-1]) + 1

    def to_dict(self) -> dict[str, Any]:
        """Bins from the first to the last that any curve uses."""
        low, high = self._used()
        means, deviations = self.moments.mean, np.sqrt(self.moments.variance)
        curves = {
            name: {
                "right": float(self._right_R[r] / self.moments.count),
                "mean": float(means[r]),
                "deviation": None if np.isnan(deviations[r]) else float(deviations[r]),
                "counts": self.counts_RB[r, low:high].tolist(),
            }
            for r, name in enumerate(self.names)
        }
        return {"samples": self.moments.count, "edges": self.edges[low : high + 1].tolist(), "curves": curves}


def with_ensemble(logits_LMC: Tensor) -> Tensor:
    """[R, M, C] in float64: the mean over the heads, then the heads."""
    logits = logits_LMC.double()
    return torch.cat([logits.mean(0, keepdim=True), logits])


def disagreement(logits_LMC: Tensor) -> float:
    """Share of samples on which two heads answer differently, over all pairs of two heads or more."""
    answers_LM = logits_LMC.argmax(-1)
    first, second = torch.triu_indices(len(answers_LM), len(answers_LM), offset=1)
    return float((answers_LM[first] != answers_LM[second]).float().mean())


def log_probability_gaps(logits_RMC: Tensor, label: int) -> Tensor:
    """log p_label - max over other classes of log p [R, M]; positive where the answer is right."""
    others_RMC = logits_RMC.clone()
    others_RMC[..., label] = -torch.inf
    return logits_RMC[..., label] - others_RMC.amax(-1)
