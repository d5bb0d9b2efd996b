"""What a budget is, and the fixed one.

A budget decides how many samples an image gets, and what is concluded from their votes. It is also a
setting: its fields are parameters of `CertifyConfig`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from smoothheads.certify import algorithm
from smoothheads.config.check import Count, check_fields
from smoothheads.registry import Registry

if TYPE_CHECKING:
    from smoothheads.certify.algorithm import CertifyParams, Run, Sampler
    from smoothheads.types import Certificate, Counts


class Budget(ABC):
    """Each certificate is wrong with probability at most alpha, whatever the classifier and however many
    samples are spent. A component: a frozen dataclass, registered in BUDGETS."""

    registry: ClassVar[Registry[type[Budget]]]
    name: ClassVar[str]

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    @abstractmethod
    def max_samples(self) -> int | None:
        """The most samples that bound a probability; None if only the user ends it."""

    @property
    def typical_samples(self) -> int:
        """A rough number of samples per image, for estimates of the time that is left."""
        return (self.max_samples or 100_000) // 10  # docs/budgets.md: about a tenth of the fixed budget

    @property
    def ends(self) -> bool:
        """Says whether it ends by itself on every image."""
        return True

    @property
    def uses_label(self) -> bool:
        """Says whether it tests the true label, which is known in an evaluation only."""
        return False

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        """The possible numbers of selection samples if the bound is Clopper-Pearson's for one class.

        Empty for another bound: the votes of one class then do not determine the radius.
        """
        return ()

    @abstractmethod
    def check(self, params: CertifyParams) -> None:
        """Raises ConfigError, before the first sample, for a plan that cannot certify anything."""

    @abstractmethod
    def run(self, params: CertifyParams) -> Run[Certificate]:
        """Requests votes as long as it needs them and returns the certificate."""

    @abstractmethod
    def recompute(
        self, params: CertifyParams, selection: Counts, votes: Counts, claimed: Certificate
    ) -> Certificate:
        """Returns the certificate of stored votes.

        Where it depends on an order that is not stored, it is the one nearest to the `claimed`. Raises
        SoundnessError for votes that this budget cannot have requested.
        """

    def certify(self, sample: Sampler, params: CertifyParams) -> Certificate:
        """Runs the budget with votes from a function."""
        return algorithm.run_budget(self.run(params), sample)


BUDGETS: Final[Registry[type[Budget]]] = Registry("budget", "smoothheads.budgets")
Budget.registry = BUDGETS


@BUDGETS.register
@dataclass(frozen=True, kw_only=True)
class FixedBudget(Budget):
    """n samples of every image, as in Cohen et al.: comparable with every published table."""

    name: ClassVar[str] = "fixed"

    n0: Count = 100
    """Samples that choose the class; they never enter the bound."""
    n: Count = 100_000
    """Fresh samples that bound its probability."""

    @property
    def max_samples(self) -> int:
        return self.n

    @property
    def typical_samples(self) -> int:
        return self.n0 + self.n

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        return (self.n0,)

    def check(self, params: CertifyParams) -> None:
        algorithm.check_sample_sizes(self.n0, self.n, params)

    def run(self, params: CertifyParams) -> Run[Certificate]:
        return algorithm.certify(params, n0=self.n0, n=self.n)

    def recompute(
        self,
        params: CertifyParams,
        selection: Counts,
        votes: Counts,
        claimed: Certificate,  # noqa: ARG002
    ) -> Certificate:
        """Returns exactly the certificate of these votes."""
        stored = iter((selection, votes))
        return self.certify(lambda _, __: next(stored), params)
