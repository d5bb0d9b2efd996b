"""Certified images in memory, ours or anybody's: arrays over images and what is known of the settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from smoothheads import notebook
from smoothheads.errors import LedgerError, SmoothheadsError
from smoothheads.noise import FloatGaussian, NoiseLaw
from smoothheads.results import metrics
from smoothheads.results.ledger import Ledger
from smoothheads.results.manifest import Manifest
from smoothheads.results.recount import Damage
from smoothheads.types import ABSTAIN, ENSEMBLE, Certified

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """All arrays have one entry per image. A foreign log has neither `rows`, as it keeps no votes, nor a
    `manifest`; what it does not state is None."""

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
    norm: str = "l2"
    """In which the radii are."""
    manifest: Manifest | None = None
    rows: tuple[Certified, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The text of every column as it was written."""
    checked: bool = True
    """False for a log without checksums: that of others, or of version 1."""
    damage: tuple[Damage, ...] = ()
    """What the checksums show; only where somebody asked to see damaged rows."""

    @classmethod
    def of(cls, name: str, rows: Iterable[Certified], manifest: Manifest, **more: Any) -> Results:
        """The rows of one certification run."""
        rows, config = tuple(rows), manifest.certify
        return cls(
            name=name,
            index=np.array([row.index for row in rows], dtype=np.int64),
            label=np.array([row.label for row in rows], dtype=np.int64),
            prediction=np.array([row.prediction for row in rows], dtype=np.int64),
            radius=np.array([row.radius for row in rows], dtype=np.float64),
            seconds=np.array([row.seconds for row in rows], dtype=np.float64),
            sigma=config.sigma,
            alpha=config.alpha,
            n=manifest.n,
            n0=manifest.n0,
            norm=manifest.norm or manifest.law.norm,
            manifest=manifest,
            rows=rows,
            **more,
        )

    @property
    def correct(self) -> Bools:
        """By definition, not by the log's own column: some scripts write a running total there."""
        return np.asarray(self.prediction == self.label)

    @property
    def abstained(self) -> Bools:
        return np.asarray(self.prediction == ABSTAIN)

    @property
    def acr(self) -> float:
        """Average certified radius: 0 for wrong answers and abstentions."""
        return metrics.average_certified_radius(self.correct, self.radius)

    def certified_accuracy(self, radius: float) -> float:
        """Share of the images that are right and certified at least that far."""
        return float(metrics.certified_accuracy(self.correct, self.radius, [radius])[0])

    @property
    def law(self) -> NoiseLaw:
        """What made the radii out of probabilities; that of Gaussian noise for a foreign log."""
        return FloatGaussian() if self.manifest is None else self.manifest.law

    @property
    def rule(self) -> str:
        return ENSEMBLE if self.manifest is None else self.manifest.certify.rule

    @property
    def budget(self) -> str:
        """How the samples were spent; in a foreign log n for every image, as everybody does."""
        return "fixed" if self.manifest is None else self.manifest.budget

    @property
    def missing(self) -> int:
        """How many images the manifest expects beyond those that are here; 0 for a foreign log."""
        expected = () if self.manifest is None else self.manifest.expected
        return max(0, len(expected or ()) - len(self))

    @property
    def has_votes(self) -> bool:
        return bool(self.rows)

    @property
    def samples(self) -> Ints | None:
        """Per image, those of the selection included; None for a foreign log of unknown n."""
        if self.rows:
            return np.array([row.samples for row in self.rows], dtype=np.int64)
        return None if self.n is None else np.full(len(self), self.n + (self.n0 or 0), dtype=np.int64)

    def label_probability(self) -> Floats | None:
        """Share of the samples classified as the true label [images].

        From the votes where they were kept. Otherwise its certified lower bound, which is known only for
        correctly certified images (0 elsewhere) and needs sigma; None without it.
        """
        if self.has_votes:
            return np.array([_share(row, self.rule) for row in self.rows])
        if self.sigma is None:
            return None
        return np.where(self.correct, ndtr(self.radius / self.sigma), 0.0)

    def take(self, positions: Ints) -> Results:
        arrays: dict[str, Any] = {name: getattr(self, name)[positions] for name in _ARRAYS}
        rows = tuple(self.rows[i] for i in positions) if self.rows else ()
        columns = {name: tuple(texts[i] for i in positions) for name, texts in self.columns.items()}
        return replace(self, **arrays, rows=rows, columns=columns)

    def save(self, folder: Path | str) -> Path:
        """Writes a ledger, to a folder that is new or empty, or holds the first rows of this one."""
        if self.manifest is None:
            raise LedgerError("results with votes and a manifest", f"a foreign log, {self.name}", "keep it")
        with Ledger.open(Path(folder), self.manifest) as ledger:
            for row in self.rows[len(ledger) :]:
                ledger.append(row)
        return Path(folder)

    def to_pandas(self) -> Any:
        """A DataFrame with a row per image; needs the package pandas."""
        try:
            import pandas as pd
        except ImportError:
            raise SmoothheadsError(
                "the package pandas", "none installed", "run: pip install pandas"
            ) from None
        columns = {name: getattr(self, name) for name in (*_ARRAYS, "correct", "abstained", "samples")}
        return pd.DataFrame({name: values for name, values in columns.items() if values is not None})

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Certified]:
        """The records with their votes; a foreign log has none."""
        if not self.rows and len(self):
            raise LedgerError("results with votes", f"a foreign log, {self.name}", "use its arrays")
        return iter(self.rows)

    def _repr_html_(self) -> str:
        radii = np.linspace(0, float(self.radius.max(initial=0.0)), 101).tolist()
        accuracy = metrics.certified_accuracy(self.correct, self.radius, radii).tolist()
        facts = {
            "images": f"{len(self):,}" + (f", {self.missing:,} to come" if self.missing else ""),
            "average certified radius": f"{self.acr:.4f}",
            "right and certified": f"{self.correct.mean():.1%}",
            "abstained": f"{self.abstained.mean():.1%}",
            "sigma, alpha, n": f"{self.sigma}, {self.alpha}, {self.n}",
        }
        return notebook.table(facts, self.name) + notebook.curve(
            radii, accuracy, f"{self.norm} radius", "certified accuracy"
        )


def _share(row: Certified, rule: str) -> float:
    """Votes for the label; those of the selection where a hopeless image got no others."""
    counted = [votes for votes in (row.votes, row.selection) if votes.n > 0]
    return float(counted[0].for_rule(rule)[row.label] / counted[0].n) if counted else 0.0


_ARRAYS = ("index", "label", "prediction", "radius", "seconds")
