"""A certificate that may be read at any moment and only grows: no sample size need be chosen."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

from smoothheads.certify.algorithm import DAMAGED, CertifyParams, Run, Samples, check_sample_sizes, top_class
from smoothheads.certify.bounds import minimum_n, p_lower_anytime
from smoothheads.certify.budgets.base import BUDGETS, Budget
from smoothheads.config.check import Count, Natural, Positive
from smoothheads.errors import ConfigError, SoundnessError
from smoothheads.types import Certificate, Counts, Phase

_MOST_ALPHA = 0.3  # below it the evidence falls in p0 wherever it suffices (see p_lower_anytime)


@BUDGETS.register
@dataclass(frozen=True, kw_only=True)
class AnytimeBudget(Budget):
    """Stops when TARGET is certified, after n samples or after SECONDS, whatever comes first.

    With probability at least 1 - alpha all certificates on the way are correct at once, so any reason to stop
    is a good one.
    """

    name: ClassVar[str] = "anytime"

    n0: Count = 100
    """Samples that choose the class; they never enter the bound."""
    n: Natural = 100_000
    """Fresh samples at most; 0 for no limit: only target, seconds or the reader of the stream ends it."""
    target: Positive | None = None
    """Radius at which to stop."""
    seconds: Positive | None = None
    """Time after which to stop, for every image; the certificate that holds then is returned."""

    @property
    def max_samples(self) -> int | None:
        return self.n or None

    @property
    def ends(self) -> bool:
        """A target alone may be out of reach, so it does not count."""
        return self.n > 0 or self.seconds is not None

    def check(self, params: CertifyParams) -> None:
        check_sample_sizes(self.n0, self.n or minimum_n(params.alpha), params)
        if not params.alpha <= _MOST_ALPHA:
            raise ConfigError(
                f"alpha is {params.alpha:g}; budget anytime needs alpha <= {_MOST_ALPHA}, for example 0.001."
            )

    def run(self, params: CertifyParams) -> Run[Certificate]:
        self.check(params)
        started = time.monotonic()
        # Step 1: n0 samples choose the class.
        candidate = top_class((yield Samples(Phase.SELECTION, self.n0)))
        k = n = 0
        p_lower = 0.0
        certificate = params.certificate(candidate, k, n, self.n0, p_lower=p_lower)
        while self._continues(certificate, time.monotonic() - started):
            # Step 2: one more block of fresh samples. The certificate so far holds whenever the reader stops.
            count = params.block if self.n == 0 else min(params.block, self.n - n)
            votes = yield Samples(Phase.ESTIMATION, count, certificate if n else None)
            k, n = k + int(votes[candidate]), n + count
            # Step 3: the running maximum of bounds that all hold at once (Ville's inequality).
            p_lower = max(p_lower, p_lower_anytime(k, n, params.alpha))
            certificate = params.certificate(candidate, k, n, self.n0, p_lower=p_lower)
        return certificate

    def _continues(self, certificate: Certificate, seconds: float) -> bool:
        if certificate.n == 0:
            return True
        reached = self.target is not None and certificate.radius >= self.target
        spent = self.n > 0 and certificate.n >= self.n
        return not (reached or spent or (self.seconds is not None and seconds >= self.seconds))

    def recompute(
        self, params: CertifyParams, selection: Counts, votes: Counts, claimed: Certificate
    ) -> Certificate:
        """Returns the certificate nearest to the claimed one that some order of these votes gives.

        The running maximum lies between the bound of the totals and that of all hits before all misses.
        """
        candidate, n0, n = top_class(selection), int(selection.sum()), int(votes.sum())
        step, most = params.block, self.n or n
        if n0 != self.n0 or not (0 < n <= most and (n % step == 0 or n == self.n)):
            raise SoundnessError(
                f"Budget anytime takes {self.n0} selection samples and a multiple of {step} others up to "
                f"{most}, but the votes are of {n0} and {n}. {DAMAGED}"
            )
        k = int(votes[candidate])
        # The best order has its k hits first; a bound is computed at whole blocks only.
        early = [m for m in (k // step * step, -(-k // step) * step) if 0 < m < n]
        bounds = [p_lower_anytime(min(k, m), m, params.alpha) for m in (n, *early)]
        p_lower = min(max(bounds[0], claimed.p_lower + params.correction), max(bounds))
        return params.certificate(candidate, k, n, n0, p_lower=p_lower)
