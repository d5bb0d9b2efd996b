"""The manifest of a ledger: everything needed to repeat a run. No other module knows its keys."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from smoothheads.certify.config import CertifyConfig
from smoothheads.config import Json, from_dict, load_json, require_equal, to_dict
from smoothheads.errors import ConfigError, LedgerError, one_of
from smoothheads.noise import NoiseLaw

FILE = "manifest.json"
KIND = '"smoothheads-ledger/'
FORMAT = "smoothheads-ledger/3"
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
            raise LedgerError(f"Shard {self.number} of {self.of} does not exist; number shards from 0.")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Everything needed to repeat a certification run, or to refuse mixing it with another."""

    certify: CertifyConfig
    aggregations: tuple[str, ...]
    """The aggregations (base classifiers) whose votes every row has."""
    classes: int
    correction: float
    """Taken off every p_lower, for the distance of the sampled noise from the exact law."""
    indices: tuple[int, ...] | None = None
    """The images of the whole run, of all shards together, in order."""
    shard: Shard | None = None
    format: str = FORMAT
    created: str = ""
    engine: dict[str, Any] = field(default_factory=dict)
    """The engine's description of itself; `artefact` has the hashes of converted networks."""
    scope: str | None = None
    """The noise's own sentence on what arithmetic the certificate covers."""
    norm: str | None = None
    weights: str | None = None
    """sha256 of the weights."""
    train_sigma: float | None = None
    network: dict[str, Any] = field(default_factory=dict)
    """Facts about the network for readers: arch, heads, method, seed, seconds of training, ..."""
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
            raise one_of("aggregation", self.certify.aggregation, self.aggregations)
        if not 1 <= self.classes <= _MOST_CLASSES:
            raise ConfigError(f"A manifest states 1 to {_MOST_CLASSES:,} classes, not {self.classes}.")

    @classmethod
    def upgrade(cls, data: Json) -> Json:
        """Expands a progression of indices, which is written as three numbers."""
        # {"first": 0, "step": 20, "count": 500} stands for 0, 20, ..., 9980.
        indices = data.get("indices")
        if not isinstance(indices, dict):
            return data
        try:
            first, step, count = (int(indices[key]) for key in ("first", "step", "count"))
            if count > _MOST_IMAGES:
                raise ValueError(f"{count} images")
            return data | {"indices": list(range(first, first + step * count, step))}
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"indices must be a list, or first, step and count: {error}.") from None

    @property
    def expected(self) -> tuple[int, ...] | None:
        """The images of the complete ledger (or shard) in order; None if they are not stated."""
        # Shards take turns, so that each has images of all kinds.
        if self.indices is None or self.shard is None:
            return self.indices
        return self.indices[self.shard.number :: self.shard.of]

    @property
    def law(self) -> NoiseLaw:
        """The law of the noise, with the theorem that turns probabilities into radii."""
        return self.certify.law

    @property
    def n(self) -> int | None:
        """The largest number of estimation samples."""
        return self.certify.plan.max_samples

    @property
    def n0(self) -> int | None:
        """The number of selection samples; None for a budget that decides it image by image."""
        return getattr(self.certify.plan, "n0", None)

    def to_json(self) -> Json:
        """Returns plain values; what is not known is left out."""
        plain = to_dict(self)
        if self.indices is not None:
            plain["indices"] = describe_indices(self.indices)
        return {key: value for key, value in plain.items() if value is not None}


def from_json(data: Any, where: str) -> Manifest:
    """Returns a manifest; raises a LedgerError that names what is missing or wrong."""
    if isinstance(data, dict) and data.get("format", FORMAT) != FORMAT:
        raise LedgerError(f"The ledger in {where} is {data['format']}, not {FORMAT}; certify again.")
    try:
        return from_dict(Manifest, data, "manifest")
    except (ConfigError, LedgerError) as error:
        text = str(error).rstrip(".")
        raise LedgerError(
            f"The manifest in {where} cannot be used: {text}. Certify with this version."
        ) from None


def read_manifest(folder: Path | str) -> Manifest:
    """Returns the manifest of a ledger's folder."""
    path = Path(folder, FILE)
    try:
        data = load_json(path)
    except ConfigError as error:
        raise LedgerError(f"{folder} holds no ledger: {error}") from None
    return from_json(data, str(folder))


def digest(data: Json) -> str:
    """Returns the checksum of a manifest as it stands in its file, all but the date.

    The chain of checksums of the ledger's rows begins with it, so that a manifest which was changed after the
    first row is noticed. Two runs of one certification differ in the date, and must not differ in their rows.
    """
    # Through JSON and back, so that the manifest in memory and the one on the disk have one digest.
    plain = json.loads(json.dumps({key: value for key, value in data.items() if key != "created"}))
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]


def describe_indices(indices: Sequence[int]) -> dict[str, int] | list[int]:
    """Returns a progression as three numbers, any other order written out."""
    # A progression is recognised by its first step.
    values = [int(index) for index in indices]
    step = values[1] - values[0] if len(values) > 1 else 1
    if values and step > 0 and values == list(range(values[0], values[0] + step * len(values), step)):
        return {"first": values[0], "step": step, "count": len(values)}
    return values


def require_same(stored: Manifest, now: Manifest, what: str, remedy: str) -> None:
    """Raises a LedgerError that names every key in which two manifests differ, unless both are of one run.

    Args:
        what: Says in the message where the stored settings come from.
        remedy: Ends the message.
    """
    old, new = (
        {key: value for key, value in manifest.to_json().items() if key not in _INCIDENTAL}
        for manifest in (stored, now)
    )
    require_equal(old, new, LedgerError, what, remedy)
