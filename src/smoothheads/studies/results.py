"""The results of a study: certified rows, what is known of their networks, and the folder that has them.

The folder (`--out`) is an export of the store: `study.json` and one compressed log per row, enough to compute
every number and interval again without training or certifying anything.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.config import CertifyConfig
from smoothheads.config import from_dict, load_json, to_dict
from smoothheads.errors import ConfigError, LedgerError, SmoothheadsError, StorageError
from smoothheads.files import exclusive, has_stamp, reserve, write_atomic, write_json
from smoothheads.results import Results, read_log
from smoothheads.results.metrics import Estimate, mean
from smoothheads.results.results import stack
from smoothheads.studies.plan import RowName, Votes
from smoothheads.studies.spec import Images, certify_config

FORMAT = "smoothheads-study/2"
STUDY_FILE, ROWS = "study.json", "rows"
_ROUNDING = 1e-7  # of the bound, and what the correction of the noise takes off the radius
_TRUNCATION = 1e-6  # radii are cut after six decimals

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True, slots=True)
class NetworkSize:
    """The cost of a network, however fast the machine is."""

    params: int
    gmacs: float
    """Billions of multiply-accumulates of convolutions and linear layers for one image."""
    gmacs_paper: float
    """The same in the paper's convention, with biases, BatchNorm, ReLU and pooling."""
    head_fraction: float
    """Fraction of the layers that one head has; 0 for a single network."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFacts:
    """Facts of a row besides its certified images; numbers of an ensemble are means over its members."""

    certification: str = ""
    """Key of the certification with the row's votes; empty for the log of somebody else."""
    aggregation: str = ""
    weights: tuple[str, ...] = ()
    """SHA-256 of the weights of every training."""
    loss: float | None = None
    """Training loss of the last epoch."""
    easy_fraction: float | None = None
    """Fraction of the training images whose loss was at most lambda in the last epoch."""
    epoch_seconds: float | None = None
    train_peak_mib: float | None = None
    certify_peak_mib: float | None = None
    processors: tuple[str, ...] = ()
    size: NetworkSize | None = None
    failed: str | None = None
    """The message of the failure that the row rests on."""
    imported: str | None = None
    """Name of the log, if somebody else certified the row."""

    @property
    def votes(self) -> Votes:
        return self.certification, self.aggregation


@dataclass(frozen=True, slots=True)
class StudyRow(RowName):
    """One certified network of a study; `results` is None if it failed or has not been made yet."""

    results: Results | None
    facts: RowFacts = RowFacts()

    @property
    def log(self) -> Results:
        """The certified images of a row that has them."""
        assert self.results is not None, f"{self.name} is not certified"
        return self.results


@dataclass(frozen=True, slots=True)
class Stack:
    """The certified rows of one arm at one sigma, by seed: columns are [seeds, images]."""

    by_seed: Mapping[int, StudyRow] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.by_seed)

    @property
    def results(self) -> list[Results]:
        return [row.log for row in self.by_seed.values()]

    @property
    def facts(self) -> list[RowFacts]:
        return [row.facts for row in self.by_seed.values()]

    def column(self, name: str = "certified_radius") -> Floats:
        """Returns a column of the results as [seeds, images]."""
        return np.asarray(stack(self.results, name))

    @property
    def acr(self) -> Estimate:
        """The average certified radius; its standard error is over seeds, or over images for one seed."""
        radii = self.column()
        return mean(radii.mean(1)) if len(radii) > 1 else mean(radii[0])

    def certified_accuracy(self, radius: float) -> float:
        """Returns the certified accuracy at a radius in per cent, over all images and seeds."""
        certified = (self.column("correct") > 0) & (self.column("radius") >= radius)
        return 100 * float(certified.mean())

    def mean_fact(self, name: str) -> float | None:
        """Returns the mean of a fact over the seeds for which it is known."""
        values = [value for facts in self.facts if (value := getattr(facts, name)) is not None]
        return float(np.mean(values)) if values else None

    @property
    def size(self) -> NetworkSize | None:
        """The size of the network, the same for all seeds; None for the logs of others."""
        return next((facts.size for facts in self.facts if facts.size is not None), None)


@dataclass(frozen=True, kw_only=True, slots=True)
class GapCurve:
    """Histogram of the log-probability gaps of one image under noise (the paper's Figure 2)."""

    image: int
    sigma: float
    draws: int
    edges: tuple[float, ...]
    counts: tuple[int, ...]
    below: float
    """Fraction of the draws with a gap below 0, which are misclassified."""
    mean: float
    deviation: float
    """Standard deviation of the gaps."""
    weights: str = ""
    """SHA-256 of the weights of the network that was drawn."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StudyResults:
    """The rows of a study, certified or not yet, with what its tables show of them."""

    name: str
    title: str
    arms: dict[str, str]
    """The title of every arm, in the order of the tables."""
    radii: tuple[float, ...] = ()
    differences: tuple[tuple[str, str], ...] = ()
    rows: tuple[StudyRow, ...] = ()
    certify: dict[str, Any] = field(default_factory=dict)
    images: Images | None = None
    made_by: dict[str, Any] = field(default_factory=dict)
    gaps: dict[str, GapCurve] = field(default_factory=dict)
    """The curves of fig2, by arm."""

    def groups(self) -> list[tuple[str, float]]:
        """Returns the settings and sigmas of the rows, in their order."""
        return list(dict.fromkeys((row.setting, row.sigma) for row in self.rows))

    def arm(self, setting: str, sigma: float, arm: str) -> Stack:
        """Returns the certified rows of an arm, empty if there are none."""
        cell = (setting, sigma, arm)
        return Stack({row.seed: row for row in self.certified if row.cell == cell})

    @property
    def certified(self) -> list[StudyRow]:
        return [row for row in self.rows if row.results is not None]

    @property
    def several_settings(self) -> bool:
        """True if tables have to name the setting of a row."""
        return len({row.setting for row in self.rows}) > 1

    def has_failed(self, setting: str, sigma: float, arm: str) -> bool:
        return any(row.facts.failed is not None for row in self.rows if row.cell == (setting, sigma, arm))

    @property
    def failed(self) -> dict[str, str]:
        return {row.name: row.facts.failed for row in self.rows if row.facts.failed is not None}


# The exported folder


def reserve_folder(folder: Path) -> None:
    """Raises StorageError unless a study may be saved there; ask this before a long run."""
    reserve(folder, lambda there: has_stamp(there / STUDY_FILE, '"smoothheads-study/'))


def check_nothing_lost(folder: Path, votes: Mapping[str, Votes]) -> None:
    """Raises StorageError if saving rows of these names and votes would remove certified rows.

    That happens where the new study lacks an arm, sigma or seed, or certifies all of them in another way.
    """
    before: dict[str, Votes] = {}
    with suppress(SmoothheadsError):  # nothing there yet, or damaged
        before = {row.name: row.facts.votes for row in load(folder).certified if row.facts.certification}
    # Lost are rows that the new study does not have, or all of them if none has the votes that it had.
    lost = [name for name in before if name not in votes]
    if not lost and not set(before.values()) & set(votes.values()):
        lost = list(before)
    if lost:
        raise StorageError(
            f"{folder} holds {len(lost)} certified rows of another study or of other settings, the first "
            f"{lost[0]}. Choose another folder, or remove this one if it is no longer needed."
        )


def save(study: StudyResults, folder: Path) -> None:
    """Writes a folder that `load` reads, with the same bytes for the same rows.

    Raises StorageError if certified rows of another study would be lost.
    """
    reserve_folder(folder)
    with exclusive(folder, wait=True):
        check_nothing_lost(folder, {row.name: row.facts.votes for row in study.rows})
        write_unlocked(study, folder)


def write_unlocked(study: StudyResults, folder: Path) -> None:
    """Does what `save` does, for a caller who holds the folder."""
    entries = []
    for row in study.rows:
        entry = {name: getattr(row, name) for name in ("setting", "sigma", "arm", "seed")}
        # Facts that are not known are left out.
        facts = {key: value for key, value in to_dict(row.facts).items() if value not in (None, "", [])}
        file = {} if row.results is None else {"file": write_rows(row.results, folder / ROWS)}
        entries.append({**entry, **file, "facts": facts})
    # Arms are a list of pairs, because the keys of a JSON object are sorted and lose their order.
    plain = to_dict(replace(study, rows=())) | {"arms": list(study.arms.items()), "rows": entries}
    write_json(folder / STUDY_FILE, {"format": FORMAT, **plain})
    # Logs of ours that no row has any more are removed; files of somebody else stay.
    named = {entry.get("file") for entry in entries}
    for path in (folder / ROWS).glob("*.tsv.gz"):
        name = path.name.removesuffix(".tsv.gz")
        if name not in named and name == _digest(path.read_bytes()):
            path.unlink()


def load(folder: Path) -> StudyResults:
    """Reads a folder that `save` wrote.

    Raises LedgerError if a file is damaged, or a radius does not follow from its votes.
    """
    path = folder / STUDY_FILE
    data = load_json(path)
    if data.pop("format", None) != FORMAT:
        raise LedgerError(f"{path} is not the results of a study in the format {FORMAT!r}; check the path.")
    try:
        # The codec checks all types; what remains is that rows and differences are of arms of the study.
        entries = [from_dict(_Entry, entry) for entry in data.pop("rows")]
        study = from_dict(StudyResults, {**data, "arms": dict(data["arms"])})
        pairs = tuple((this, baseline) for this, baseline in study.differences)
        named = {*(entry.arm for entry in entries), *(name for pair in pairs for name in pair)}
        if unknown := sorted(named - study.arms.keys()):
            raise ConfigError(f"{unknown[0]!r} is not one of its arms.")
        rows = []
        for entry in entries:
            name = (entry.setting, entry.sigma, entry.arm, entry.seed)
            log = None
            if entry.file is not None:
                # How somebody else certified is not known, so that nothing follows from the votes.
                config = certify_config(study.certify, entry.sigma) if entry.facts.certification else None
                log = read_rows(folder / ROWS, entry.file, entry.sigma, config)
            rows.append(StudyRow(*name, log, entry.facts))
    except (ConfigError, LookupError, TypeError, ValueError) as error:
        raise LedgerError(f"{path} is damaged, so restore it from a copy: {error}") from None
    return replace(study, differences=pairs, rows=tuple(rows))


@dataclass(frozen=True, slots=True)
class _Entry(RowName):
    """A row as `study.json` has it; `file` names its log."""

    facts: RowFacts
    file: str | None = None


# The logs in it


def write_rows(results: Results, folder: Path) -> str:
    """Writes a compressed log whose name is its checksum, and returns the name without its ending."""
    data = gzip.compress(results.to_tsv().encode(), mtime=0)
    path = folder / f"{_digest(data)}.tsv.gz"
    if not path.is_file() or path.read_bytes() != data:  # new, or damaged
        write_atomic(path, data)
    return _digest(data)


def read_rows(folder: Path, name: str, sigma: float, config: CertifyConfig | None) -> Results:
    """Reads what `write_rows` wrote.

    Raises LedgerError if the file was changed, or if a radius does not follow from the votes of its image:
    whoever rewrites a whole folder can make its checksums agree, but not the votes.

    Args:
        config: How the row was certified; None for somebody else's log.
    """
    # The name must be a checksum, for it comes from a file and becomes a path.
    path = folder / f"{name}.tsv.gz"
    if not re.fullmatch(r"[0-9a-f]{16}", name) or not path.is_file():
        raise LedgerError(f"{folder} has no rows {name[:40]!r}; restore the folder from a copy.")
    if _digest(path.read_bytes()) != name:
        raise LedgerError(f"{path} was changed; restore the folder from a copy.")
    results = replace(read_log(path), sigma=sigma)
    if config is not None and len(wrong := contradicted(results, config)):
        raise LedgerError(
            f"{len(wrong)} radii in {path} do not follow from their votes, the first that of image "
            f"{wrong[0]}. The rows were changed; certify them again."
        )
    return results


def contradicted(results: Results, config: CertifyConfig) -> Ints:
    """Returns the correct images whose radius does not follow from their own votes.

    Incorrect images count as 0 in every metric whatever is written, and their votes are not saved. Budgets
    whose radius depends on the votes of more than one class cannot be checked: nothing is returned.
    """
    right = results.certified_radius != 0
    if results.samples is None or results.noisy is None:
        return cast(Ints, results.index[right])
    from scipy import special

    samples, fraction, radius = results.samples[right], results.noisy[right], results.radius[right]
    follows = np.full(len(radius), not config.plan.choice_sizes)
    # The file has one number of samples per image; the selection may have had any of the budget's sizes.
    for size in config.plan.choice_sizes:
        # The votes k of n samples, as the written fraction implies them.
        n = np.maximum(samples - size, 1)
        k = np.clip(np.round(fraction * n), 1, n)
        # The one-sided Clopper-Pearson bound of p_A, and the radius that it gives.
        p_lower: Floats = special.betaincinv(k, n - k + 1, config.alpha)
        excess = config.sigma * config.law.unit_radius(p_lower) - radius
        cut = (excess >= -_ROUNDING) & (excess <= _TRUNCATION + _ROUNDING)
        follows |= cut & (np.abs(k / n - fraction) <= _TRUNCATION)
    return cast(Ints, results.index[right][~follows])


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]
