"""A budget: two looks at the votes, the second only where the first was not enough."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothheads.certify.budgets import Budget
from smoothheads.errors import ConfigError, SoundnessError

if TYPE_CHECKING:
    from smoothheads.certify.algorithm import Run, Terms
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
            raise ConfigError(f"Set few from 1 to below n = {self.n}, not to {self.few}; a tenth is usual.")

    @property
    def max_samples(self) -> int:
        return self.n

    def check(self, terms: Terms) -> None:
        from smoothheads.certify.algorithm import require_samples

        require_samples(self.n0, self.few, terms.alpha / 2, terms.correction)

    def run(self, terms: Terms) -> Run[Certificate]:
        from smoothheads.certify.algorithm import Samples
        from smoothheads.types import Phase

        selection = yield Samples(Phase.SELECTION, self.n0)
        votes = yield Samples(Phase.ESTIMATION, self.few)
        if self._concluded(terms, selection, votes).radius < self.target:
            votes = votes + (yield Samples(Phase.ESTIMATION, self.n - self.few))
        return self._concluded(terms, selection, votes)

    def recompute(self, terms: Terms, selection: Counts, votes: Counts, claimed: Certificate) -> Certificate:
        if int(votes.sum()) not in (self.few, self.n):
            raise SoundnessError(
                f"{votes.sum()} votes are neither {self.few} nor {self.n}: certify this image again."
            )
        return self._concluded(terms, selection, votes)

    def _concluded(self, terms: Terms, selection: Counts, votes: Counts) -> Certificate:
        from smoothheads.certify.bounds import clopper_pearson_lower

        candidate, n = terms.chosen(selection), int(votes.sum())
        k = int(votes[candidate])
        p_lower = clopper_pearson_lower(k, n, terms.alpha / 2)
        return terms.certificate(candidate, k, n, self.n0, p_lower=p_lower)
