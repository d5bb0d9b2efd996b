"""CERTIFY and PREDICT of Cohen, Rosenfeld and Kolter (2019), Algorithm 1, on votes.

Here is only statistics. Both are generators that ask for the votes of fresh samples of one image,
`votes = yield Samples(phase, count)`; whoever drives them knows noise, network, batching and storage.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeVar

import numpy as np

from smoothheads.certify.bounds import class_bounds, clopper_pearson_lower
from smoothheads.certify.radius import minimum_n
from smoothheads.config.check import LEAST_ALPHA
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.lazy import special
from smoothheads.noise import GridGaussian, NoiseLaw, keyed_uniform
from smoothheads.types import ABSTAIN, Certificate, Counts, Phase

if TYPE_CHECKING:
    from smoothheads.certify.config import CertifyConfig

T = TypeVar("T")
Bound = Literal["clopper-pearson", "randomized", "pair"]
Sampler = Callable[[Phase, int], Counts]
"""Votes per class of so many fresh samples of a phase; none is ever used in two calls."""
DAMAGED: Final = "the record is damaged; certify this image again"


@dataclass(frozen=True, slots=True)
class Samples:
    """What a run asks for: the votes of `count` fresh samples of one image."""

    phase: Phase
    count: int
    so_far: Certificate | None = None
    """What holds already, if whoever is asked prefers to stop here; None where nothing does."""


Run = Generator[Samples, Counts, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the certificate of one image is about; the budget decides the rest."""

    sigma: float
    alpha: float = 0.001
    law: NoiseLaw = field(default_factory=GridGaussian)
    correction: float = 0.0
    """What the sampler's noise says must be taken off p_lower."""
    block: int = 100
    """Samples per block of noise: sizes that are multiples of it waste none."""
    label: int | None = None
    """The true label, for a budget that tests it instead of a chosen class."""
    w: float = 1.0
    """Of the randomised bound: uniform on (0, 1], drawn before sampling."""

    @classmethod
    def of(cls, config: CertifyConfig, correction: float, index: int, label: int | None = None) -> Terms:
        """Of one image in a certification."""
        return cls(
            sigma=config.sigma,
            alpha=config.alpha,
            law=config.noise,
            correction=correction,
            block=config.block,
            label=label,
            w=keyed_uniform(config.seed or 0, index),
        )

    def chosen(self, selection: Counts) -> int:
        return top_class(selection) if self.label is None else self.label

    def certificate(
        self, candidate: int, k: int, n: int, n0: int, *, p_lower: float, p_upper: float | None = None
    ) -> Certificate:
        """The one place where a bound becomes a certificate: p_lower bounds the sampled probability of the
        candidate, p_upper that of every other class if it is given."""
        p_lower = max(0.0, p_lower - self.correction)
        if p_upper is None:
            radius = self.law.radius(p_lower, self.sigma)
        else:
            p_upper = min(p_upper + self.correction, 1.0 - p_lower)
            radius = self.law.pair_radius(p_lower, p_upper, self.sigma)
        prediction, aware = candidate if radius > 0 else ABSTAIN, self.label is not None
        return Certificate(prediction, radius, p_lower, k, n, n0, label_aware=aware)


def certify(terms: Terms, *, n0: int, n: int, bound: Bound = "clopper-pearson") -> Run[Certificate]:
    """With probability at least 1 - alpha: it abstains, or the smoothed classifier answers `prediction` at
    every point closer than `radius`."""
    require_samples(n0, n, terms.alpha / 2 if bound == "pair" else terms.alpha, terms.correction)
    candidate = top_class((yield Samples(Phase.SELECTION, n0)))
    votes = yield Samples(Phase.ESTIMATION, n)
    p_lower, p_upper = class_bounds(bound, votes, candidate, terms.alpha, terms.w)
    return terms.certificate(candidate, int(votes[candidate]), n, n0, p_lower=p_lower, p_upper=p_upper)


class Prediction(NamedTuple):
    prediction: int
    votes: Counts


def predict(*, n: int, alpha: float, correction: float = 0.0) -> Run[Prediction]:
    """With probability at least 1 - alpha: it abstains, or returns the smoothed classifier's answer."""
    check_correction(correction)
    level = alpha - n * correction  # n samples together differ by at most this from exact noise
    if not LEAST_ALPHA <= alpha < 0.5 or two_sided_p_value(n, 0) > level:
        raise ConfigError(
            "n large enough that n equal votes decide (2^(1-n) <= alpha < 0.5)",
            f"n = {n}, alpha = {alpha:g}",
            "raise n: with so few samples every answer would be an abstention",
        )
    votes = yield Samples(Phase.ESTIMATION, n)
    first = top_class(votes)
    n_a, n_b = int(votes[first]), int(np.delete(votes, first).max(initial=0))
    return Prediction(first if two_sided_p_value(n_a, n_b) <= level else ABSTAIN, votes)


def two_sided_p_value(n_a: int, n_b: int) -> float:
    """Exact binomial test of n_a >= n_b votes against a fair coin, rounded up."""
    tail = float(special.betainc(n_a, n_b + 1, 0.5)) if n_a > 0 else 1.0
    return min(1.0, 2 * tail * (1 + 1e-12))


def top_class(votes: Counts) -> int:
    """The class with most votes; the smallest index among equals."""
    return int(np.argmax(votes))


def answered(run: Run[T], sample: Sampler) -> T:
    """Drives a run with a function that gives votes, stored ones for instance."""
    try:
        wanted = next(run)
        while True:
            wanted = run.send(checked(sample(wanted.phase, wanted.count), wanted.count))
    except StopIteration as end:
        result: T = end.value
        return result


def checked(votes: Counts, count: int) -> Counts:
    """Votes of exactly `count` samples; anything else is no basis for a bound."""
    whole = votes.ndim == 1 and votes.size > 0 and np.issubdtype(votes.dtype, np.integer)
    if not whole or votes.min() < 0 or int(votes.sum()) != count:
        raise SoundnessError(
            f"one vote per class of each of {count} samples",
            f"{votes!r}",
            "every sample must vote exactly once; a sample without a finite answer must stop the run",
        )
    return votes


def require_samples(n0: int, n: int, alpha: float, correction: float = 0.0) -> None:
    """Refuses, before the first sample, settings under which every answer would be an abstention."""
    check_correction(correction)
    if not LEAST_ALPHA <= alpha < 0.5:
        raise ConfigError(f"{LEAST_ALPHA:g} <= alpha < 0.5", f"{alpha:g}", "0.001 is usual")
    if n0 < 1:
        raise ConfigError("n0 >= 1", str(n0), "100 is usual")
    if n < 1 or clopper_pearson_lower(n, n, alpha) - correction <= 0.5:
        least = minimum_n(alpha)
        raise ConfigError(f"n >= {least} for alpha = {alpha:g}", str(n), f"set n to {least} or more")


def check_correction(correction: float) -> None:
    if not 0 <= correction < 0.5:
        raise SoundnessError(
            "0 <= correction < 0.5", f"{correction:g}", "take it from the noise that is sampled"
        )
