"""How many samples an image gets, and the certificate that comes of them.

`Fixed` is Cohen's and comparable with every published table; `Randomized` and `Pair` are tighter bounds on
the same samples, which are not. The sequential budgets are in `table`, `pilot` and `anytime`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from smoothheads.certify import algorithm
from smoothheads.certify.algorithm import Sampler, draw, require_samples, top_class
from smoothheads.certify.bounds import clopper_pearson_lower, clopper_pearson_upper, randomized_lower
from smoothheads.certify.theorem import GAUSSIAN, Theorem
from smoothheads.errors import ConfigError
from smoothheads.types import ABSTAIN, Certificate, Phase


class Budget(Protocol):
    """Each certificate is wrong with probability at most alpha, whatever the classifier and however many
    samples are spent; `correction` and `theorem` are the noise's."""

    def certify(
        self, sample: Sampler, *, sigma: float, correction: float = 0.0, theorem: Theorem = GAUSSIAN
    ) -> Certificate: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """n0 samples choose the class, n fresh ones bound its probability."""

    n0: int = 100
    n: int = 100_000
    alpha: float = 0.001

    def __post_init__(self) -> None:
        require_samples(self.n0, self.n, self.alpha)

    def certify(
        self, sample: Sampler, *, sigma: float, correction: float = 0.0, theorem: Theorem = GAUSSIAN
    ) -> Certificate:
        return algorithm.certify(
            sample,
            sigma=sigma,
            n0=self.n0,
            n=self.n,
            alpha=self.alpha,
            correction=correction,
            theorem=theorem,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Randomized(Fixed):
    """The randomised bound with the image's own w (`noise.keyed_uniform`), drawn before sampling and logged.
    Capped at the Clopper-Pearson bound of all hits, so that radii can be averaged."""

    w: float

    def __post_init__(self) -> None:
        Fixed.__post_init__(self)
        if not 0 < self.w <= 1:
            raise ConfigError("0 < w <= 1", f"{self.w:g}", "take the image's keyed uniform")

    def certify(
        self, sample: Sampler, *, sigma: float, correction: float = 0.0, theorem: Theorem = GAUSSIAN
    ) -> Certificate:
        require_samples(self.n0, self.n, self.alpha, correction)
        candidate = top_class(draw(sample, Phase.SELECTION, self.n0))
        k = int(draw(sample, Phase.ESTIMATION, self.n)[candidate])
        most = clopper_pearson_lower(self.n, self.n, self.alpha)
        p_lower = max(0.0, min(randomized_lower(k, self.n, self.alpha, self.w), most) - correction)
        radius = theorem.radius(p_lower, sigma)
        return Certificate(candidate if radius > 0 else ABSTAIN, radius, p_lower, k, self.n, self.n0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair(Fixed):
    """Bounds the runner-up as well, with half of alpha each, instead of giving it all that is left.

    The true runner-up has at most as many votes as the most voted other class, so an upper bound from that
    count covers it; no correction for the number of classes is needed.
    """

    def certify(
        self, sample: Sampler, *, sigma: float, correction: float = 0.0, theorem: Theorem = GAUSSIAN
    ) -> Certificate:
        require_samples(self.n0, self.n, self.alpha / 2, correction)
        candidate = top_class(draw(sample, Phase.SELECTION, self.n0))
        votes = draw(sample, Phase.ESTIMATION, self.n)
        k, runner_up = int(votes[candidate]), int(np.delete(votes, candidate).max(initial=0))
        p_lower = max(0.0, clopper_pearson_lower(k, self.n, self.alpha / 2) - correction)
        p_upper = min(clopper_pearson_upper(runner_up, self.n, self.alpha / 2) + correction, 1.0 - p_lower)
        radius = theorem.pair_radius(p_lower, p_upper, sigma)
        return Certificate(candidate if radius > 0 else ABSTAIN, radius, p_lower, k, self.n, self.n0)
