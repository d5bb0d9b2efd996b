"""A certificate that may be read at any moment and only grows: no sample size need be chosen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from smoothheads.certify.algorithm import DAMAGED, Run, Samples, Terms, require_samples, top_class
from smoothheads.certify.bounds import p_lower_anytime
from smoothheads.certify.budgets.base import BUDGETS, Budget
from smoothheads.certify.radius import minimum_n
from smoothheads.config.check import Count, Positive
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.types import Certificate, Counts, Phase

_MOST_ALPHA = 0.3  # below it the evidence falls in p0 wherever it suffices (see p_lower_anytime)


@BUDGETS.register
@dataclass(frozen=True, kw_only=True)
class AnytimeBudget(Budget):
    """Stops when TARGET is certified, after n samples or when SECONDS are over, whatever comes first.

    With probability at least 1 - alpha every certificate on the way is right, at once, so any reason to stop
    is a good one.
    """

    name: ClassVar[str] = "anytime"

    n0: Count = 100
    """Samples that choose the class; they never enter the bound."""
    n: Count | None = 100_000
    """Fresh samples at most; none: only target, seconds or whoever listens to the stream ends it."""
    target: Positive | None = None
    """Radius at which to stop."""
    seconds: Positive | None = None
    """Time after which to stop, for every image; what holds then is the answer."""

    @property
    def max_samples(self) -> int | None:
        return self.n

    @property
    def ends(self) -> bool:
        """A target alone may be out of reach."""
        return self.n is not None or self.seconds is not None

    def check(self, terms: Terms) -> None:
        n = self.n or minimum_n(terms.alpha)
        require_samples(self.n0, n, terms.alpha, terms.correction)
        if not terms.alpha <= _MOST_ALPHA:
            raise ConfigError(f"alpha <= {_MOST_ALPHA}", f"{terms.alpha:g}", "0.001 is usual")

    def run(self, terms: Terms) -> Run[Certificate]:
        self.check(terms)
        started = time.monotonic()
        candidate = top_class((yield Samples(Phase.SELECTION, self.n0)))
        k = n = 0
        p_lower = 0.0
        certificate = terms.certificate(candidate, k, n, self.n0, p_lower=p_lower)
        while self._goes_on(certificate, time.monotonic() - started):
            count = terms.block if self.n is None else min(terms.block, self.n - n)
            votes = yield Samples(Phase.ESTIMATION, count, certificate if n else None)
            k, n = k + int(votes[candidate]), n + count
            p_lower = max(p_lower, p_lower_anytime(k, n, terms.alpha))
            certificate = terms.certificate(candidate, k, n, self.n0, p_lower=p_lower)
        return certificate

    def _goes_on(self, certificate: Certificate, seconds: float) -> bool:
        if certificate.n == 0:
            return True
        reached = self.target is not None and certificate.radius >= self.target
        spent = self.n is not None and certificate.n >= self.n
        return not (reached or spent or (self.seconds is not None and seconds >= self.seconds))

    def recompute(self, terms: Terms, selection: Counts, votes: Counts, claimed: Certificate) -> Certificate:
        """Of the running bounds that some order of these votes reaches, the nearest to the claimed:
        not below the bound of the totals, not above that of all hits before all misses."""
        candidate, n0, n = top_class(selection), int(selection.sum()), int(votes.sum())
        step, most = terms.block, n if self.n is None else self.n
        if n0 != self.n0 or not (0 < n <= most and (n % step == 0 or n == self.n)):
            raise SoundnessError(
                f"{self.n0} samples and a multiple of {step} up to {most}", f"{n0} and {n}", DAMAGED
            )
        k = int(votes[candidate])
        early = [m for m in (k // step * step, -(-k // step) * step) if 0 < m < n]
        bounds = [p_lower_anytime(min(k, m), m, terms.alpha) for m in (n, *early)]
        p_lower = min(max(bounds[0], claimed.p_lower + terms.correction), max(bounds))
        return terms.certificate(candidate, k, n, n0, p_lower=p_lower)
