"""The one result type: certified images as arrays, ours or anybody's, with what is known of the settings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, overload

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from smoothheads import notebook
from smoothheads.errors import ConfigError, LedgerError, SmoothheadsError, one_of
from smoothheads.files import write_atomic
from smoothheads.noise import FloatGaussian, NoiseLaw
from smoothheads.results import metrics
from smoothheads.results.ledger import Ledger
from smoothheads.results.manifest import Manifest
from smoothheads.results.metrics import Bools, Floats, Ints
from smoothheads.results.row import FIELD_COLUMNS, RowError
from smoothheads.types import ABSTAIN, ENSEMBLE, Certificate, Certified, Votes, format_radius

if TYPE_CHECKING:
    from matplotlib.figure import Figure

T = TypeVar("T")

STORED = ("index", "label", "prediction", "radius", "seconds", "noisy", "samples")
"""Columns that are kept; the others follow from them."""
COLUMNS = (*STORED, "correct", "abstained", "certified_radius", "votes")
"""What `results["..."]` knows."""


@dataclass(frozen=True, slots=True)
class Row:
    """One certified image. `record` has its certificate and all votes, and is None in a log without votes."""

    index: int
    label: int
    prediction: int
    radius: float
    seconds: float
    samples: int | None = None
    record: Certified | None = field(default=None, repr=False)

    @property
    def correct(self) -> bool:
        return self.prediction == self.label

    @property
    def abstained(self) -> bool:
        return self.prediction == ABSTAIN

    @property
    def certificate(self) -> Certificate:
        return self._with_votes().certificate

    @property
    def selection(self) -> Votes:
        """The votes that chose the class."""
        return self._with_votes().selection

    @property
    def votes(self) -> Votes:
        """The votes that the bound is computed from, of every aggregation."""
        return self._with_votes().votes

    def _with_votes(self) -> Certified:
        if self.record is None:
            raise LedgerError(f"Image {self.index} comes from a log without votes; use its radius.")
        return self.record


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Results:
    """Certified images: every array has one entry per image.

    `results["radius"]` is a column, `results[0]` one image and `results[10:20]` ten of them. A foreign log
    has neither `rows` (it keeps no votes) nor a `manifest`; what it does not state is None.
    """

    name: str
    index: Ints
    label: Ints
    prediction: Ints
    radius: Floats
    seconds: Floats
    noisy: Floats | None = None
    """Fraction of the noisy samples that are classified as the label; None for a log without votes."""
    samples: Ints | None = None
    """Noisy samples per image, those of the selection included; None for a foreign log of unknown n."""
    sigma: float | None = None
    alpha: float | None = None
    n: int | None = None
    n0: int | None = None
    norm: str = "l2"
    """The norm of the radii."""
    manifest: Manifest | None = None
    rows: tuple[Certified, ...] = ()
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The text of every column of a foreign log, as it was written."""
    errors: tuple[RowError, ...] = ()
    """Rows with wrong checksums; filled only if the log was read with `damaged=True`."""

    def __post_init__(self) -> None:
        if self.samples is None and self.n is not None:
            samples = np.full(len(self), self.n + (self.n0 or 0), dtype=np.int64)
            object.__setattr__(self, "samples", samples)

    @classmethod
    def of(
        cls, name: str, rows: Iterable[Certified], manifest: Manifest, errors: Sequence[RowError] = ()
    ) -> Results:
        """Returns the rows of one certification run as `Results`."""
        # Columns that tables and tests need, from the rows; the rows stay for what needs votes.
        rows, config = tuple(rows), manifest.certify
        return cls(
            name=name,
            index=np.array([row.index for row in rows], dtype=np.int64),
            label=np.array([row.label for row in rows], dtype=np.int64),
            prediction=np.array([row.prediction for row in rows], dtype=np.int64),
            radius=np.array([row.radius for row in rows], dtype=np.float64),
            seconds=np.array([row.seconds for row in rows], dtype=np.float64),
            noisy=np.array([_label_fraction(row, config.aggregation) for row in rows], dtype=np.float64),
            samples=np.array([row.samples for row in rows], dtype=np.int64),
            sigma=config.sigma,
            alpha=config.alpha,
            n=manifest.n,
            n0=manifest.n0,
            norm=manifest.norm or manifest.law.norm,
            manifest=manifest,
            rows=rows,
            errors=tuple(errors),
        )

    # Columns and images

    @property
    def correct(self) -> Bools:
        """Computed from label and prediction, not taken from the log's own column: some scripts write a
        running total there."""
        return np.asarray(self.prediction == self.label)

    @property
    def abstained(self) -> Bools:
        return np.asarray(self.prediction == ABSTAIN)

    @property
    def certified_radius(self) -> Floats:
        """The radius where the prediction is correct, 0 elsewhere; its mean is the ACR."""
        return np.where(self.correct, self.radius, 0.0)

    @property
    def votes(self) -> Ints | None:
        """The estimation votes of the certified aggregation [images, classes]; None without votes."""
        if not self.rows:
            return None
        return np.array([row.votes.for_aggregation(self.aggregation) for row in self.rows])

    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: int) -> Row: ...
    @overload
    def __getitem__(self, key: slice | Sequence[int] | NDArray[Any]) -> Results: ...

    def __getitem__(self, key: str | int | slice | Sequence[int] | NDArray[Any]) -> Any:
        """Returns a column by its name, one image by its position, or several as `Results`."""
        if isinstance(key, str):
            if key not in COLUMNS:
                raise one_of("column of the results", key, COLUMNS)
            return getattr(self, key)
        # Slices, lists of positions and masks of booleans choose several images.
        if not isinstance(key, int | np.integer):
            return self.take(np.arange(len(self))[key])
        if not -len(self) <= key < len(self):
            raise IndexError(f"{self.name} has {len(self)} images, so there is no image at {key}.")
        i = int(key) % len(self)
        return Row(
            index=int(self.index[i]),
            label=int(self.label[i]),
            prediction=int(self.prediction[i]),
            radius=float(self.radius[i]),
            seconds=float(self.seconds[i]),
            samples=None if self.samples is None else int(self.samples[i]),
            record=self.rows[i] if self.rows else None,
        )

    def take(self, positions: Ints) -> Results:
        """Returns the images at these positions, in this order."""
        # Every column, row and text must be cut alike.
        arrays = {name: getattr(self, name) for name in STORED}
        chosen: dict[str, Any] = {n: values[positions] for n, values in arrays.items() if values is not None}
        rows = tuple(self.rows[i] for i in positions) if self.rows else ()
        columns = {name: tuple(texts[i] for i in positions) for name, texts in self.columns.items()}
        return replace(self, **chosen, rows=rows, columns=columns)

    def without_votes(self, **changes: Any) -> Results:
        """Returns a copy that has lost its votes, as a foreign log is, with other values in `changes`."""
        return replace(self, **{"rows": (), "noisy": None, "samples": None, "columns": {}} | changes)

    def __len__(self) -> int:
        return len(self.index)

    def __iter__(self) -> Iterator[Row]:
        return (self[i] for i in range(len(self)))

    # Metrics

    @property
    def acr(self) -> float:
        """The average certified radius; wrong predictions and abstentions count as 0."""
        return float(self.certified_radius.mean())

    @overload
    def certified_accuracy(self, radius: float) -> float: ...
    @overload
    def certified_accuracy(self, radius: Sequence[float] | Floats) -> Floats: ...

    def certified_accuracy(self, radius: float | Sequence[float] | Floats) -> float | Floats:
        """Returns the fraction of images that are correct and certified at least that far, at each radius."""
        values = self.certified_at(np.ravel(radius)).mean(axis=0)
        return float(values[0]) if np.ndim(radius) == 0 else values

    def certified_at(self, radii: Sequence[float] | Floats) -> Bools:
        """Returns [images, radii]: whether the image is correct and certified at least that far.

        The comparison is not strict, as in every code base of the field.
        """
        return np.asarray(self.correct[:, None] & (self.radius[:, None] >= np.asarray(radii)[None, :]))

    @property
    def class_acr(self) -> dict[int, float]:
        """The ACR of each class that the images have."""
        values = self.certified_radius
        return {int(c): float(values[self.label == c].mean()) for c in np.unique(self.label)}

    def class_certified_accuracy(self, radius: float = 0.0) -> dict[int, float]:
        """Returns the certified accuracy at this radius of each class that the images have."""
        hits = self.correct & (self.radius >= radius)
        return {int(c): float(hits[self.label == c].mean()) for c in np.unique(self.label)}

    @property
    def worst_class(self) -> int:
        """The class with the smallest ACR; the first one among equals."""
        return min(self.class_acr, key=self.class_acr.__getitem__)

    def class_name(self, label: int) -> str:
        """Returns the name of a class; its number if the log does not name its classes."""
        names = () if self.manifest is None else self.manifest.class_names
        return names[label] if label < len(names) else str(label)

    @property
    def certified_classes(self) -> int:
        """The number of classes with at least one correctly certified image."""
        return len(np.unique(self.label[self.correct]))

    def label_probability(self) -> Floats | None:
        """Returns the probability of the true label under noise [images], as far as the log shows it.

        It is the fraction of votes where votes were kept. Otherwise it is the certified lower bound, which is
        known only for correctly certified images (0 elsewhere) and needs sigma; None without it.
        """
        # Votes tell it; a certified radius tells at least its lower bound Phi(radius / sigma).
        if self.noisy is not None:
            return self.noisy
        if self.sigma is None:
            return None
        return np.where(self.correct, ndtr(self.radius / self.sigma), 0.0)

    # Settings

    @property
    def law(self) -> NoiseLaw:
        """The law that turned probabilities into radii; Gaussian for a foreign log."""
        return FloatGaussian() if self.manifest is None else self.manifest.law

    @property
    def aggregation(self) -> str:
        """The base classifier that was certified."""
        return ENSEMBLE if self.manifest is None else self.manifest.certify.aggregation

    @property
    def budget(self) -> str:
        """The budget that spent the samples; in a foreign log n for every image, as everybody does."""
        return "fixed" if self.manifest is None else self.manifest.certify.budget

    @property
    def missing(self) -> int:
        """The number of images that the manifest expects and that are not here; 0 for a foreign log."""
        expected = () if self.manifest is None else self.manifest.expected
        return max(0, len(expected or ()) - len(self))

    # Files and other forms

    def save(self, path: Path | str) -> Path:
        """Writes a ledger into a folder that is new or empty, or that holds the first rows of this one."""
        if self.manifest is None or not self.rows:
            raise LedgerError(f"{self.name} has no votes, so it cannot become a ledger; use `to_tsv`.")
        with Ledger.open(Path(path), self.manifest) as ledger:
            for row in self.rows[len(ledger) :]:
                ledger.append(row)
        return Path(path)

    def to_tsv(self, path: Path | str | None = None) -> str:
        """Returns the field's six columns as text, with `noisy` and `samples` where they are known.

        `read_log` reads it again, with all values cut or rounded to six decimals; a `path` gets it too.
        """
        lines = ["\t".join([*FIELD_COLUMNS, *(name for name in STORED[5:] if self[name] is not None)])]
        for i, row in enumerate(self):
            texts = [row.index, row.label, row.prediction, format_radius(row.radius), int(row.correct)]
            texts.append(f"{row.seconds:.6f}")
            texts += [] if self.noisy is None else [f"{self.noisy[i]:.6f}"]
            texts += [] if self.samples is None else [int(self.samples[i])]
            lines.append("\t".join(map(str, texts)))
        text = "\n".join([*lines, ""])
        if path is not None:
            write_atomic(Path(path), text)
        return text

    def plot(self, *others: Results | Sequence[Results]) -> Figure:
        """Returns a matplotlib figure of certified accuracy over radius, with the curves of `others`."""
        from smoothheads.report.plots import certified_accuracy

        return certified_accuracy([self, *flatten(others)])

    def to_pandas(self) -> Any:
        """Returns a DataFrame with a row per image; needs the package pandas."""
        try:
            import pandas as pd
        except ImportError:
            raise SmoothheadsError("to_pandas needs pandas; run `pip install pandas`.") from None
        columns = {name: getattr(self, name) for name in COLUMNS if name != "votes"}
        return pd.DataFrame({name: values for name, values in columns.items() if values is not None})

    def __repr__(self) -> str:
        """A summary in five lines."""
        settings = {"sigma": self.sigma, "alpha": self.alpha, "n": self.n}
        known = [f"{name} {value:g}" for name, value in settings.items() if value is not None]
        if not len(self):
            return f"Results {self.name!r}: no images"
        head = f"Results {self.name!r}: {len(self):,} images, {self.norm} radii"
        # Radii and accuracies stand in columns of eight characters, six of them at most.
        radii = metrics.default_radii(float(self.radius.max()))[:6]
        by_class, worst = self.class_acr, self.worst_class
        lines = [
            ", ".join([head, *known]),
            f"ACR {self.acr:.4f}, {self.abstained.mean():.1%} abstained",
            f"classes with a certificate: {self.certified_classes} of {len(by_class)}; "
            f"smallest class ACR {by_class[worst]:.4f} (class {self.class_name(worst)})",
            "radius              " + "".join(f"{radius:>8.2f}" for radius in radii),
            "certified accuracy  " + "".join(f"{value:>8.1%}" for value in self.certified_accuracy(radii)),
        ]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        radii = np.linspace(0, float(self.radius.max(initial=0.0)), 101).tolist()
        facts = {
            "images": f"{len(self):,}" + (f", {self.missing:,} to come" if self.missing else ""),
            "average certified radius": f"{self.acr:.4f}",
            "correct and certified": f"{self.correct.mean():.1%}",
            "abstained": f"{self.abstained.mean():.1%}",
            "classes with a certificate": f"{self.certified_classes} of {len(self.class_acr)}",
            "sigma, alpha, n": f"{self.sigma}, {self.alpha}, {self.n}",
        }
        accuracy = self.certified_accuracy(radii).tolist()
        curve = notebook.curve(radii, accuracy, f"{self.norm} radius", "certified accuracy")
        return notebook.table(facts, self.name) + curve


def flatten(sources: Iterable[T | Sequence[T]]) -> list[T]:
    """Returns what was given one by one, as lists, or both, as one list; a text is one source."""
    flat: list[Any] = []
    for source in sources:
        flat += source if isinstance(source, list | tuple) else [source]
    return flat


def stack(results: Sequence[Results], column: str = "certified_radius") -> NDArray[Any]:
    """Returns one column of several `Results` of the same images as [seeds, images].

    Raises LedgerError where the images or their labels differ.
    """
    if not results:
        raise ConfigError("There are no results to stack.")
    for other in results:
        if not np.array_equal(results[0].index, other.index):
            raise LedgerError(
                f"{results[0].name} and {other.name} have different images, so they do not stack."
            )
    check_labels_agree(results)
    return np.stack([each[column] for each in results])


def check_labels_agree(results: Sequence[Results]) -> None:
    """Raises LedgerError for the first image that has two labels: then the logs are of different data."""
    # Logs may have different images, so only those that two of them share are compared.
    first = results[0]
    for other in results[1:]:
        shared, here, there = np.intersect1d(first.index, other.index, return_indices=True)
        differ = np.flatnonzero(first.label[here] != other.label[there])
        if len(differ):
            i = differ[0]
            raise LedgerError(
                f"Image {shared[i]} has label {first.label[here[i]]} in {first.name} and "
                f"{other.label[there[i]]} in {other.name}; give logs of the same data."
            )


def _label_fraction(row: Certified, aggregation: str) -> float:
    """Returns the fraction of votes for the label, from the selection if an image got no others."""
    # Budget radius spends nothing on an image that its pilot finds hopeless; then the selection tells.
    counted = [votes for votes in (row.votes, row.selection) if votes.n > 0]
    known = counted and row.label >= 0
    return float(counted[0].for_aggregation(aggregation)[row.label] / counted[0].n) if known else 0.0
