"""What certificates are worth, in the columns of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from smoothheads.report.table import Cell
from smoothheads.results.metrics import average_certified_radius, certified_accuracy, default_radii
from smoothheads.types import Certificate

COLUMNS: Final = 4


def summary(
    certificates: Sequence[Certificate], labels: NDArray[np.int64], ceiling: float
) -> dict[str, Cell]:
    """The average certified radius, and certified accuracy at the first of the usual radii."""
    correct = np.array([each.prediction for each in certificates]) == labels
    radius = np.array([each.radius for each in certificates])
    radii = default_radii(ceiling)[:COLUMNS]
    acr = average_certified_radius(correct, radius)
    shares = certified_accuracy(correct, radius, radii).tolist()
    cells = {f"CA {r:g}": Cell(f"{share:.0%}", share) for r, share in zip(radii, shares, strict=True)}
    return {"ACR": Cell(f"{acr:.4f}", acr)} | cells
