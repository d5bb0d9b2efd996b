"""A budget: two looks at the votes, the second only where the first was not enough."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

from smoothheads.certify.budgets import Budget
from smoothheads.errors import ConfigError, SoundnessError

if TYPE_CHECKING:
    from smoothheads.certify.algorithm import CertifyParams, Run
    from smoothheads.types import Certificate, Counts


@dataclass(frozen=True, kw_only=True)
class TwoLooks(Budget):
    """`few` samples where they certify `target`, and n in all elsewhere. Each of the two bounds fails with
    probability at most alpha / 2, so both hold with probability 1 - alpha, whichever is reported."""

    name: ClassVar[str] = "two-looks"

    n0: int = 100
    """Samples that choose the class; they never enter the bound."""
    few: int = 1_000
    """Fresh samples of the first look."""
    n: int = 10_000
    """Fresh samples of both looks together."""
    target: float = 0.5
    """Radius that ends it at the first look."""

    def __post_init__(self) -> None:
        if not 0 < self.few < self.n:
            raise ConfigError(f"few is {self.few}; choose 0 < few < n = {self.n}, for example a tenth of n.")

    @property
    def max_samples(self) -> int:
        return self.n

    def check(self, params: CertifyParams) -> None:
        from smoothheads.certify.algorithm import check_sample_sizes

        check_sample_sizes(self.n0, self.few, replace(params, alpha=params.alpha / 2))

    def run(self, params: CertifyParams) -> Run[Certificate]:
        from smoothheads.certify.algorithm import Samples
        from smoothheads.types import Phase

        selection = yield Samples(Phase.SELECTION, self.n0)
        votes = yield Samples(Phase.ESTIMATION, self.few)
        if self._conclude(params, selection, votes).radius < self.target:
            votes = votes + (yield Samples(Phase.ESTIMATION, self.n - self.few))
        return self._conclude(params, selection, votes)

    def recompute(
        self, params: CertifyParams, selection: Counts, votes: Counts, claimed: Certificate
    ) -> Certificate:
        if int(votes.sum()) not in (self.few, self.n):
            raise SoundnessError(
                f"{votes.sum()} votes are not {self.few} or {self.n}: certify this image again."
            )
        return self._conclude(params, selection, votes)

    def _conclude(self, params: CertifyParams, selection: Counts, votes: Counts) -> Certificate:
        from smoothheads.certify.bounds import clopper_pearson_lower

        candidate, n = params.choose_class(selection), int(votes.sum())
        k = int(votes[candidate])
        p_lower = clopper_pearson_lower(k, n, params.alpha / 2)
        return params.certificate(candidate, k, n, self.n0, p_lower=p_lower)
