"""CERTIFY and PREDICT of Cohen, Rosenfeld and Kolter (2019), Algorithm 1, on votes.

This is only statistics. Both are generators that request the votes of fresh samples of one image,
`votes = yield Samples(phase, count)`; the caller knows noise, network, batching and storage.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias, TypeVar

import numpy as np
from scipy import special

from smoothheads.certify.bounds import clopper_pearson_lower, minimum_n
from smoothheads.config.check import LEAST_ALPHA
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.noise import GridGaussian, NoiseLaw
from smoothheads.types import ABSTAIN, Certificate, Counts, Phase

if TYPE_CHECKING:
    from smoothheads.certify.config import CertifyConfig

T = TypeVar("T")
Sampler: TypeAlias = Callable[[Phase, int], Counts]
"""Returns the votes per class of fresh samples of a phase; none is ever used in two calls."""
DAMAGED: Final = "The record is damaged; certify this image again."


@dataclass(frozen=True, slots=True)
class Samples:
    """A request of a run for the votes of `count` fresh samples of one image."""

    phase: Phase
    count: int
    partial: Certificate | None = None
    """The certificate that already holds if sampling stops here; None where nothing holds yet."""


Run: TypeAlias = Generator[Samples, Counts, T]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertifyParams:
    """Everything but the budget that the certificate of one image depends on."""

    sigma: float
    alpha: float = 0.001
    law: NoiseLaw = field(default_factory=GridGaussian)
    correction: float = 0.0
    """Subtracted from p_lower: how far the sampler's noise may be from the exact law."""
    block: int = 100
    """Samples per block of noise: sample sizes that are multiples of it waste none."""
    label: int | None = None
    """The true label, for a budget that tests it instead of a chosen class."""

    def __post_init__(self) -> None:
        _check_correction(self.correction)

    @classmethod
    def of(cls, config: CertifyConfig, correction: float, label: int | None = None) -> CertifyParams:
        """Returns the parameters of one image in a certification with `config`."""
        return cls(
            sigma=config.sigma,
            alpha=config.alpha,
            law=config.law,
            correction=correction,
            block=config.block,
            label=label,
        )

    def choose_class(self, selection: Counts) -> int:
        """Returns the class to test: the true label if it is given, else the one with most votes."""
        return top_class(selection) if self.label is None else self.label

    def certificate(self, candidate: int, k: int, n: int, n0: int, *, p_lower: float) -> Certificate:
        """Turns a bound into a certificate. This is the only place where that happens.

        Args:
            candidate: c_A, the class that the bound is about.
            k: Votes for it among the n estimation samples.
            n: Estimation samples.
            n0: Selection samples.
            p_lower: Lower bound on the probability that a sample votes for the candidate.
        """
        # Under the exact noise the class may be less likely than under the sampler, by the correction.
        p_lower = max(0.0, p_lower - self.correction)
        # The theorem of the noise law: sigma Phi^-1(p_lower) for Gaussian noise.
        radius = self.law.radius(p_lower, self.sigma)
        # Nothing is certified at p_lower <= 1/2, where the radius is 0.
        prediction = candidate if radius > 0 else ABSTAIN
        return Certificate(prediction, radius, p_lower, k, n, n0, label_aware=self.label is not None)


def certify(params: CertifyParams, *, n0: int, n: int) -> Run[Certificate]:
    """CERTIFY of Algorithm 1.

    With probability at least 1 - alpha it abstains, or the smoothed classifier predicts the returned class at
    every point closer than the returned radius.

    Args:
        params: sigma, alpha and the noise law.
        n0: Samples that choose the class.
        n: Fresh samples that bound its probability.
    """
    check_sample_sizes(n0, n, params)
    # counts0 <- SampleUnderNoise(f, x, n0, sigma); c_A <- top index in counts0
    candidate = top_class((yield Samples(Phase.SELECTION, n0)))
    # counts <- SampleUnderNoise(f, x, n, sigma)
    votes = yield Samples(Phase.ESTIMATION, n)
    # p_A <- LowerConfBound(counts[c_A], n, 1 - alpha)
    k = int(votes[candidate])
    p_lower = clopper_pearson_lower(k, n, params.alpha)
    # if p_A > 1/2 return c_A and radius sigma Phi^-1(p_A), else return ABSTAIN
    return params.certificate(candidate, k, n, n0, p_lower=p_lower)


class Prediction(NamedTuple):
    prediction: int
    votes: Counts


def predict(*, n: int, alpha: float, correction: float = 0.0) -> Run[Prediction]:
    """PREDICT of Algorithm 1.

    With probability at least 1 - alpha it abstains or returns the smoothed classifier's prediction.

    Args:
        n: Samples.
        alpha: Probability that a returned class is another one than the smoothed classifier's.
        correction: How far the sampler's noise may be from the exact law, per sample.
    """
    check_alpha(alpha)
    _check_correction(correction)
    # n samples together differ from exact noise by at most n * correction in total variation.
    level = alpha - n * correction
    if two_sided_p_value(n, 0) > level:
        enough = (m for m in range(n, 1000) if two_sided_p_value(m, 0) <= alpha - m * correction)
        raise _too_few(n, alpha, least=next(enough, 1000))
    # counts <- SampleUnderNoise(f, x, n, sigma); c_A, c_B <- top two indices; n_A, n_B <- their counts
    votes = yield Samples(Phase.ESTIMATION, n)
    first = top_class(votes)
    n_a, n_b = int(votes[first]), int(np.delete(votes, first).max(initial=0))
    # if BinomPValue(n_A, n_A + n_B, 0.5) <= alpha return c_A, else return ABSTAIN
    return Prediction(first if two_sided_p_value(n_a, n_b) <= level else ABSTAIN, votes)


def two_sided_p_value(n_a: int, n_b: int) -> float:
    """Returns the p-value, rounded up, of n_a >= n_b votes in the exact binomial test of a fair coin."""
    # P(Bin(n_a + n_b, 1/2) >= n_a) is the incomplete beta function I_1/2(n_a, n_b + 1); twice for two sides.
    tail = float(special.betainc(n_a, n_b + 1, 0.5)) if n_a > 0 else 1.0
    return min(1.0, 2 * tail * (1 + 1e-12))


def top_class(votes: Counts) -> int:
    """Returns the class with most votes; the smallest one if several have as many."""
    return int(np.argmax(votes))


def run_budget(run: Run[T], sample: Sampler) -> T:
    """Runs a generator to its end with votes from a function, for example stored ones."""
    try:
        wanted = next(run)
        while True:
            wanted = run.send(validate_votes(sample(wanted.phase, wanted.count), wanted.count))
    except StopIteration as end:
        result: T = end.value
        return result


def validate_votes(votes: Counts, count: int) -> Counts:
    """Returns the votes; raises SoundnessError unless they are those of exactly `count` samples."""
    counts = votes.ndim == 1 and votes.size > 0 and np.issubdtype(votes.dtype, np.integer)
    if not counts or votes.min() < 0 or int(votes.sum()) != count:
        raise SoundnessError(
            f"{count} samples must give one vote each, but their votes are {votes!r}: "
            "a sample without a finite output must stop the run."
        )
    return votes


def check_sample_sizes(n0: int, n: int, params: CertifyParams) -> None:
    """Raises ConfigError, before the first sample, if every image would be an abstention."""
    alpha = params.alpha
    check_alpha(alpha)
    if n0 < 1:
        raise ConfigError(f"n0 is {n0}; at least one sample must choose the class, and 100 are usual.")
    # Unanimous votes give the largest bound that n samples can.
    if n < 1 or clopper_pearson_lower(n, n, alpha) - params.correction <= 0.5:
        raise _too_few(n, alpha, least=minimum_n(alpha))


def _too_few(n: int, alpha: float, least: int) -> ConfigError:
    return ConfigError(
        f"n = {n} is too small for alpha = {alpha:g}: even unanimous votes would abstain; use n >= {least}."
    )


def check_alpha(alpha: float) -> None:
    """Raises ConfigError for a probability of error that is out of range."""
    if not LEAST_ALPHA <= alpha < 0.5:
        raise ConfigError(f"alpha is {alpha:g}; choose {LEAST_ALPHA:g} <= alpha < 0.5, for example 0.001.")


def _check_correction(correction: float) -> None:
    if not 0 <= correction < 0.5:
        raise SoundnessError(
            f"The correction for the noise is {correction:g}, but it must be at least 0 and below 0.5: "
            "take it from the noise that is sampled."
        )
