"""Small frozen types that the stages pass to each other. Importing them imports neither torch nor numpy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_FLOOR, Decimal
from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from smoothheads import notebook
from smoothheads.errors import SoundnessError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Pixels: TypeAlias = "NDArray[np.uint8]"  # one image [channels, height, width] of grid integers 0..max_value
Counts: TypeAlias = "NDArray[np.int64]"  # votes per class [C]

ABSTAIN: Final = -1
UNLABELLED: Final = -2  # the label of an image whose label is unknown; no prediction equals it
ENSEMBLE: Final = "ensemble"


@dataclass(frozen=True, slots=True)
class Grid:
    """Images are integers m = 0..max_value, a pixel is m / max_value in [0, 1]; radii are in pixel units."""

    max_value: int


class Phase(IntEnum):
    """What a noise sample is for; part of its key, so that no sample ever serves two purposes."""

    SELECTION = 0
    ESTIMATION = 1
    PILOT = 2


@dataclass(frozen=True, slots=True)
class Votes:
    """Votes of several base classifiers on the same noisy samples: `counts[r, c]`, aggregation r, class c.

    Each aggregation (the ensemble, one head, a prefix of heads, a consensus) is a classifier of its own; they
    share the forward pass. Every row sums to the number of samples.
    """

    aggregations: tuple[str, ...]
    counts: NDArray[np.int64]

    @classmethod
    def zeros(cls, aggregations: tuple[str, ...], classes: int) -> Votes:
        """Returns the votes on no sample."""
        import numpy as np

        return cls(aggregations, np.zeros((len(aggregations), classes), dtype=np.int64))

    def for_aggregation(self, aggregation: str = ENSEMBLE) -> Counts:
        """Returns the votes [C] for one of the aggregations."""
        row: Counts = self.counts[self.aggregations.index(aggregation)]
        return row

    @property
    def n(self) -> int:
        """The number of samples."""
        return int(self.counts[0].sum())

    def __add__(self, other: Votes) -> Votes:
        if self.aggregations != other.aggregations:
            raise ValueError(
                f"expected votes of the aggregations {self.aggregations}, got {other.aggregations}"
            )
        return Votes(self.aggregations, self.counts + other.counts)

    def _repr_html_(self) -> str:
        rows = {
            aggregation: counts.tolist()
            for aggregation, counts in zip(self.aggregations, self.counts, strict=True)
        }
        return notebook.bars(rows, f"Votes on {self.n:,} samples")


def format_radius(radius: float, decimals: int = 6) -> str:
    """Returns a radius, or the bound of a probability, rounded down.

    A radius that was chosen with as many decimals keeps them: 0.3 is 0.300000, although the nearest double is
    a little smaller.
    """
    nearest = f"{radius:.{decimals}f}"
    if float(nearest) == radius:
        return nearest
    return f"{Decimal(radius).quantize(Decimal(1).scaleb(-decimals), rounding=ROUND_FLOOR):f}"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The statement about one image.

    With probability at least 1 - alpha over the noise of the certification: if `prediction` is a class, no
    perturbation of norm below `radius` changes the prediction of the smoothed classifier. The noise decides
    the norm: l2 if it is Gaussian. ABSTAIN has radius 0.
    """

    prediction: int
    radius: float
    p_lower: float
    """Lower bound of the probability of the class under the noise (the papers' underlined p_A)."""
    k: int
    """Votes for the class."""
    n: int
    """Samples that the bound is computed from."""
    n0: int
    """Samples that chose the class."""
    label_aware: bool = False
    """The class was the true label, fixed before sampling: for evaluation, where the label is known."""

    @property
    def abstained(self) -> bool:
        return self.prediction == ABSTAIN

    def _repr_html_(self) -> str:
        answer = "abstains" if self.abstained else f"class {self.prediction}"
        facts = {
            "answer": answer,
            "holds within": format_radius(self.radius, 4),
            "its probability under noise": f"at least {format_radius(self.p_lower)}",
            "votes for it": f"{self.k:,} of {self.n:,}",
            "class chosen by": "the true label" if self.label_aware else f"{self.n0:,} other samples",
        }
        return notebook.table(facts, "Certificate")


@dataclass(frozen=True, slots=True)
class Certified:
    """The certificate of one image with the votes that prove it.

    Raises SoundnessError for a radius that is not finite or negative, and for an abstention with a radius.
    """

    index: int
    label: int
    certificate: Certificate
    selection: Votes
    """Votes on the samples that chose the class, those of a pilot included."""
    votes: Votes
    """Votes on the fresh samples that the bound is computed from."""
    seconds: float = 0.0
    rechecked: tuple[int, int] = (0, 0)
    """Samples that were evaluated a second time, and votes that rounding changed; not part of the ledger."""

    def __post_init__(self) -> None:
        radius, p_lower = self.radius, self.certificate.p_lower
        sound = math.isfinite(radius) and radius >= 0 and 0 <= p_lower <= 1
        if not sound or (self.abstained and radius > 0):
            raise SoundnessError(
                f"The certificate of image {self.index} is wrong (radius {radius}, p_lower "
                f"{p_lower}, prediction {self.prediction}): a radius is finite and >= 0, and 0 for an "
                "abstention. Please report how it came about."
            )

    @property
    def prediction(self) -> int:
        return self.certificate.prediction

    @property
    def radius(self) -> float:
        """In pixel units; 0 for an abstention."""
        return self.certificate.radius

    @property
    def correct(self) -> bool:
        return self.prediction == self.label

    @property
    def abstained(self) -> bool:
        return self.certificate.abstained

    @property
    def samples(self) -> int:
        """All samples of the image."""
        return self.selection.n + self.votes.n
