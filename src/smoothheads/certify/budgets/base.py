"""A budget decides how many samples an image gets, and what is concluded from their votes.

Nothing heavy is imported here: a budget is also a setting, which is parsed before anything is computed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, Final

from smoothheads.config.check import check_fields
from smoothheads.registry import Registry

if TYPE_CHECKING:
    from smoothheads.certify.algorithm import Run, Sampler, Terms
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
        """The most that bound a probability; None if only the user ends it."""

    @property
    def typical_samples(self) -> int:
        """Of an image, roughly: for estimates of the time that is left."""
        return (self.max_samples or 100_000) // 10  # docs/budgets.md: a tenth or so of the fixed budget

    @property
    def ends(self) -> bool:
        """Whether it ends by itself on every image."""
        return True

    @property
    def uses_label(self) -> bool:
        """Whether it tests the true label: for evaluation, where it is known."""
        return False

    @property
    def choice_sizes(self) -> tuple[int, ...]:
        """How many samples may have gone before those of the bound, where it is Clopper-Pearson's for one
        class; none where it is another, so that the votes of one class do not tell the radius."""
        return ()

    @abstractmethod
    def check(self, terms: Terms) -> None:
        """Raises ConfigError, before the first sample, for a plan that cannot certify anything."""

    @abstractmethod
    def run(self, terms: Terms) -> Run[Certificate]:
        """Asks for votes as long as it needs them and returns the certificate."""

    @abstractmethod
    def recompute(self, terms: Terms, selection: Counts, votes: Counts, claimed: Certificate) -> Certificate:
        """The certificate of these stored votes; where that depends on an order that is not stored, the one
        nearest to the `claimed`. Raises SoundnessError for votes that this budget cannot have asked for."""

    def certify(self, sample: Sampler, terms: Terms) -> Certificate:
        """The run, with votes from a function."""
        from smoothheads.certify.algorithm import answered

        return answered(self.run(terms), sample)


BUDGETS: Final[Registry[type[Budget]]] = Registry("budget", "smoothheads.budgets")
Budget.registry = BUDGETS
