"""How different the heads are under noise: disagreement, correlated errors, variances and margins.

Shape letters: L heads, M noise samples of one image, C classes, R = 1 + L for the ensemble and each head.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Logits = NDArray[np.floating[Any]]
BIN = 0.1
_MOST_BINS = 1000  # that a JSON file gets


class Spread:
    """Pairwise disagreement, correlation of errors and variances over noise samples of many images."""

    def __init__(self, heads: int) -> None:
        self.heads, self.images, self.samples = heads, 0, 0
        self._pairs = np.triu_indices(heads, 1)
        self._wrong_together_RR = np.zeros((1 + heads, 1 + heads))
        self._differing = 0.0
        self._variances = np.zeros(2)

    def add_image(self, logits_LMC: Logits, label: int) -> None:
        """Adds the logits of all noise samples of one image."""
        logits_RMC = with_ensemble(logits_LMC)
        classes_RM = logits_RMC.argmax(-1)
        samples = classes_RM.shape[1]
        # Errors of the ensemble and of each head, alone (on the diagonal) and jointly of every pair.
        wrong_RM = (classes_RM != label).astype(np.float64)
        self._wrong_together_RR += wrong_RM @ wrong_RM.T
        # Samples on which two heads predict different classes, averaged over all pairs.
        if self.heads > 1:
            first, second = (classes_RM[1 + heads] for heads in self._pairs)
            self._differing += samples * float(np.mean(first != second))
        # Variance of the logits over the noise, averaged over classes (and heads).
        variance_RC = logits_RMC.var(1, ddof=1) if samples > 1 else np.full_like(logits_RMC[:, 0], np.nan)
        self._variances += variance_RC[0].mean(), variance_RC[1:].mean()
        self.images += 1
        self.samples += samples

    @property
    def disagreement(self) -> float | None:
        """The fraction of samples on which two heads differ; None for a single head."""
        return self._differing / self.samples if self.heads > 1 else None

    @property
    def error_correlation(self) -> float | None:
        """The mean correlation of two heads' errors; None if it is not defined."""
        # Phi coefficient: covariance of two Bernoulli variables over their standard deviations.
        together_LL = self._wrong_together_RR[1:, 1:] / self.samples
        wrong_L = together_LL.diagonal()
        covariance_LL = together_LL - np.outer(wrong_L, wrong_L)
        deviation_L = np.sqrt(wrong_L * (1 - wrong_L))
        scale_LL = np.outer(deviation_L, deviation_L)
        # A head that is always right, or never, correlates with none.
        pairs = tuple(heads[scale_LL[self._pairs] > 0] for heads in self._pairs)
        return float(np.mean(covariance_LL[pairs] / scale_LL[pairs])) if len(pairs[0]) else None

    @property
    def variance_ratio(self) -> float | None:
        """The variance of the ensemble's logits over the heads' own; None if they never move."""
        ensemble, heads = self._variances
        return float(ensemble / heads) if self.heads > 1 and heads > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values; accuracies are fractions of all samples."""
        wrong_R = self._wrong_together_RR.diagonal()
        accuracy, *heads = ((self.samples - wrong_R) / self.samples).tolist()
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
    """Log-probability margins of one image, label against the best other class: positive is correct."""

    def __init__(self, heads: int) -> None:
        self.names = ("ensemble", *(f"head-{k}" for k in range(1, heads + 1)))
        self._parts: list[Floats] = []

    def add(self, logits_LMC: Logits, label: int) -> None:
        """Adds a block of samples: log p_label - max over other classes of log p."""
        # The normaliser of the softmax cancels, so differences of logits do.
        logits_RMC = with_ensemble(logits_LMC)
        others_RMC = np.delete(logits_RMC, label, axis=-1)
        self._parts.append(logits_RMC[..., label] - others_RMC.max(-1))

    def values(self) -> Floats:
        """Returns [R, M]: the margins of the ensemble, then of each head."""
        return np.concatenate(self._parts, axis=1)

    def histogram(self, bins: int) -> tuple[Floats, NDArray[np.int64]]:
        """Returns the edges of at most `bins` bins over the range that any curve uses, and counts [R, bins].

        One edge is 0 where both signs occur, so that no bin mixes correct and wrong samples.
        """
        # Every bin is a multiple of BIN wide and begins at a multiple of its width.
        steps_RM = np.floor(self.values() / BIN).astype(np.int64)
        low, high = int(steps_RM.min()), int(steps_RM.max()) + 1
        width = -(-(high - low) // (bins - 1))
        first, last = low // width, -(-high // width)
        places_RM = steps_RM // width - first
        counts_RB = np.stack([np.bincount(row, minlength=last - first) for row in places_RM])
        edges = BIN * width * np.arange(first, last + 1, dtype=np.float64)
        return edges, counts_RB.astype(np.int64)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values."""
        values_RM = self.values()
        samples = values_RM.shape[1]
        edges, counts_RB = self.histogram(_MOST_BINS)
        curves = {
            name: {
                "correct": float((values > 0).mean()),
                "mean": float(values.mean()),
                "std": float(values.std(ddof=1)) if samples > 1 else None,
                "counts": counts.tolist(),
            }
            for name, values, counts in zip(self.names, values_RM, counts_RB, strict=True)
        }
        return {"samples": samples, "edges": edges.tolist(), "curves": curves}


def with_ensemble(logits_LMC: Logits) -> Floats:
    """Returns [R, M, C] in float64: the mean over the heads, then the heads."""
    logits = logits_LMC.astype(np.float64)
    return np.concatenate([logits.mean(0, keepdims=True), logits])
