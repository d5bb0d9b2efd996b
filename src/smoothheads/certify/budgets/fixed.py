"""The same number of samples for every image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from smoothheads.certify import algorithm
from smoothheads.certify.algorithm import Run, Terms
from smoothheads.certify.budgets.base import BUDGETS, Budget
from smoothheads.config.check import Count
from smoothheads.types import Certificate, Counts


@BUDGETS.register
@dataclass(frozen=True, kw_only=True)
class FixedBudget(Budget):
    """Cohen's, comparable with every published table: n samples of every image."""

    name: ClassVar[str] = "fixed"

    n0: Count = 100
    """Samples that choose the class; they never enter the bound."""
    n: Count = 100_000
    """Fresh samples that bound its probability."""
    bound: algorithm.Bound = "clopper-pearson"
    """randomized and pair (bounds the runner-up too) are tighter but do not compare with published tables."""

    @property
    def max_samples(self) -> int:
        return self.n

    @property
    def typical_samples(self) -> int:
        return self.n0 + self.n

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        return (self.n0,) if self.bound == "clopper-pearson" else ()

    def check(self, terms: Terms) -> None:
        alpha = terms.alpha / 2 if self.bound == "pair" else terms.alpha
        algorithm.require_samples(self.n0, self.n, alpha, terms.correction)

    def run(self, terms: Terms) -> Run[Certificate]:
        return algorithm.certify(terms, n0=self.n0, n=self.n, bound=self.bound)

    def recompute(
        self,
        terms: Terms,
        selection: Counts,
        votes: Counts,
        claimed: Certificate,  # noqa: ARG002
    ) -> Certificate:
        """Exactly the certificate of these votes."""
        stored = iter((selection, votes))
        return self.certify(lambda _, __: next(stored), terms)
