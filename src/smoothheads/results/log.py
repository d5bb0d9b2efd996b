"""A certification log in memory, ours or anybody's: arrays over images and what is known of the settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from smoothheads.certify.theorem import Theorem
from smoothheads.results import manifest as manifests
from smoothheads.results.manifest import Manifest, expected_indices, setting
from smoothheads.results.row import Row
from smoothheads.types import ABSTAIN, ENSEMBLE

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Log:
    """All arrays have one entry per image. `rows` is empty for a foreign log, which keeps no votes."""

    name: str
    index: Ints
    label: Ints
    prediction: Ints
    radius: Floats
    seconds: Floats
    sigma: float | None = None
    alpha: float | None = None
    n: int | None = None
    n0: int | None = None
    manifest: Manifest = field(default_factory=dict)
    rows: tuple[Row, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The text of every column as it was written."""

    @property
    def correct(self) -> Bools:
        """By definition, not by the log's own column: some scripts write a running total there."""
        return np.asarray(self.prediction == self.label)

    @property
    def abstained(self) -> Bools:
        return np.asarray(self.prediction == ABSTAIN)

    @property
    def theorem(self) -> Theorem:
        """What made the radii out of probabilities."""
        return manifests.theorem(self.manifest)

    @property
    def norm(self) -> str:
        """In which the radii are; that of the theorem unless they were converted."""
        return str(setting(self.manifest, "norm") or self.theorem.norm)

    @property
    def rule(self) -> str:
        return setting(self.manifest, "rule") or ENSEMBLE

    @property
    def missing(self) -> int:
        """How many images the manifest expects beyond those that are here; 0 for a foreign log."""
        return max(0, len(expected_indices(self.manifest) or ()) - len(self))

    @property
    def has_votes(self) -> bool:
        return bool(self.rows) and all(row.votes is not None for row in self.rows)

    @property
    def samples(self) -> Ints | None:
        """Forward passes per image, selection included; None for a foreign log of unknown n."""
        if self.rows:
            return np.array([row.n0 + row.n for row in self.rows], dtype=np.int64)
        return None if self.n is None else np.full(len(self), self.n + (self.n0 or 0), dtype=np.int64)

    def label_probability(self) -> Floats | None:
        """Share of noisy copies classified as the true label [images].

        From the votes where they were kept. Otherwise its certified lower bound, which is known only for
        correctly certified images (0 elsewhere) and in a foreign log needs sigma; None without it.
        """
        if self.has_votes:
            return np.array([_share(row, self.rule) for row in self.rows])
        if self.rows:
            return np.array([row.p_lower if row.correct else 0.0 for row in self.rows])
        if self.sigma is None:
            return None
        return np.where(self.correct, ndtr(self.radius / self.sigma), 0.0)

    def take(self, positions: Ints) -> Log:
        arrays: dict[str, Any] = {name: getattr(self, name)[positions] for name in _ARRAYS}
        rows = tuple(self.rows[i] for i in positions) if self.rows else ()
        columns = {name: tuple(texts[i] for i in positions) for name, texts in self.columns.items()}
        return replace(self, **arrays, rows=rows, columns=columns)

    def __len__(self) -> int:
        return len(self.index)


def _share(row: Row, rule: str) -> float:
    """Votes for the label; those of the selection where a hopeless image got no others."""
    counted = [votes for votes in (row.votes, row.selection) if votes is not None and votes.n > 0]
    return float(counted[0].of(rule)[row.label] / counted[0].n) if counted else 0.0


_ARRAYS = ("index", "label", "prediction", "radius", "seconds")
