"""What a ledger's manifest says. No other module knows its keys; what version 1 wrote reads alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smoothheads.certify.config import CertifyConfig
from smoothheads.config import Json, from_dict, load_json, require_equal, to_dict
from smoothheads.errors import ConfigError, LedgerError
from smoothheads.noise import NoiseLaw

FILE = "manifest.json"
KIND = '"smoothheads-ledger/'
FORMAT, FORMAT_1 = "smoothheads-ledger/2", "smoothheads-ledger/1"
"""Version 1 has no checksums."""
_MOST_IMAGES = 10**8
_MOST_CLASSES = 1_000_000  # every row has votes for all of them
_INCIDENTAL = ("created", "format", "network")  # two runs that differ in these are one and the same


@dataclass(frozen=True, kw_only=True, slots=True)
class DataFacts:
    name: str
    fingerprint: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Shard:
    """Every `of`-th image of a run, from the one at place `number` (from 0) on."""

    number: int
    of: int

    def __post_init__(self) -> None:
        if not 0 <= self.number < self.of:
            raise LedgerError(
                f"a shard from 0 to {self.of - 1}", str(self.number), "number the shards from 0"
            )


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything needed to repeat a certification run, or to refuse mixing it with another."""

    certify: CertifyConfig
    aggregations: tuple[str, ...]
    """The base classifiers whose votes every row has."""
    classes: int
    correction: float
    """What the sampler's noise takes off every p_lower."""
    indices: tuple[int, ...] | None = None
    """The images of the whole run, of all shards together, in order."""
    shard: Shard | None = None
    format: str = FORMAT
    created: str = ""
    engine: dict[str, Any] = field(default_factory=dict)
    """As the engine describes itself; `artefact` has the hashes of converted networks."""
    scope: str | None = None
    """The noise's own sentence on what arithmetic the certificate covers."""
    norm: str | None = None
    weights: str | None = None
    """sha256 of the weights."""
    train_sigma: float | None = None
    network: dict[str, Any] = field(default_factory=dict)
    """What a reader wants to know of the network: arch, heads, method, seed, seconds of training, ..."""
    data: DataFacts | None = None
    shape: tuple[int, ...] | None = None
    grid: int | None = None
    """The largest value of a pixel."""
    class_names: tuple[str, ...] = ()
    versions: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] | None = None
    """sha256 of the ledger whose votes were certified again."""

    def __post_init__(self) -> None:
        if self.certify.aggregation not in self.aggregations:
            raise ConfigError(
                f"an aggregation of {', '.join(self.aggregations)}",
                repr(self.certify.aggregation),
                "see `aggregations`",
            )
        if not 1 <= self.classes <= _MOST_CLASSES:
            raise ConfigError(f"1 to {_MOST_CLASSES:,} classes", str(self.classes), "correct the manifest")

    @classmethod
    def upgrade(cls, data: Json) -> Json:
        """A progression of indices is written in three numbers."""
        said = data.get("indices")
        if not isinstance(said, dict):
            return data
        try:
            first, step, count = (int(said[key]) for key in ("first", "step", "count"))
            if count > _MOST_IMAGES:
                raise ValueError(f"{count} images")
            return data | {"indices": list(range(first, first + step * count, step))}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ConfigError("first, step and count at indices", str(error), "correct the value") from None

    @property
    def expected(self) -> tuple[int, ...] | None:
        """The images that this ledger, perhaps a shard, holds when complete, in order; None: not stated."""
        if self.indices is None or self.shard is None:
            return self.indices
        return self.indices[self.shard.number :: self.shard.of]

    @property
    def law(self) -> NoiseLaw:
        """Of the noise, which says what it proves."""
        return self.certify.noise

    @property
    def budget(self) -> str:
        """How the samples were spent; a bound of its own goes by its name."""
        bound = getattr(self.certify.budget, "bound", "clopper-pearson")
        return self.certify.budget.name if bound == "clopper-pearson" else str(bound)

    @property
    def noise(self) -> str:
        return self.certify.noise.name

    @property
    def n(self) -> int | None:
        return self.certify.budget.max_samples

    @property
    def n0(self) -> int | None:
        return getattr(self.certify.budget, "n0", None)

    @property
    def label_aware(self) -> bool:
        return self.certify.budget.uses_label

    def to_json(self) -> Json:
        plain = to_dict(self)
        if self.indices is not None:
            plain["indices"] = describe_indices(self.indices)
        return {key: value for key, value in plain.items() if value is not None}


def from_json(data: Any, where: str) -> Manifest:
    """Raises LedgerError naming what is missing or wrong."""
    try:
        return from_dict(Manifest, data, "manifest")
    except (ConfigError, LedgerError) as error:
        raise LedgerError(
            f"the manifest of a ledger in {where}", str(error), "certify again with this version"
        ) from None


def read_manifest(folder: Path | str) -> Manifest:
    path = Path(folder, FILE)
    try:
        data = load_json(path)
    except ConfigError as error:
        raise LedgerError(f"{folder} holds no ledger: {error}") from None
    return from_json(data, str(folder))


def describe_indices(indices: Sequence[int]) -> dict[str, int] | list[int]:
    """A progression in three numbers, any other order written out."""
    values = [int(index) for index in indices]
    step = values[1] - values[0] if len(values) > 1 else 1
    if values and step > 0 and values == list(range(values[0], values[0] + step * len(values), step)):
        return {"first": values[0], "step": step, "count": len(values)}
    return values


def require_same(stored: Manifest, now: Manifest, what: str, remedy: str) -> None:
    """Raises LedgerError that names every key in which `now` differs from `what` is stored,
    unless both are of one run."""
    old, new = (
        {key: value for key, value in manifest.to_json().items() if key not in _INCIDENTAL}
        for manifest in (stored, now)
    )
    require_equal(old, new, LedgerError, what, remedy)
