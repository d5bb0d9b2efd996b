"""A worker of a Ray cluster: one engine that counts the votes of ranges of noise blocks, if it computes the
function of the driver; and what is sent to it.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import Engine, Request, Store, Work, artefact, work_of
from smoothheads.certify.engines.artefact import FACTS, Artefact
from smoothheads.certify.engines.base import BlockEngine
from smoothheads.certify.soundness import require_still
from smoothheads.data import DataInfo
from smoothheads.errors import ConfigError, SmoothheadsError, WorkerError, reason
from smoothheads.files import exclusive, new_folder
from smoothheads.models.multihead import MultiHead
from smoothheads.provenance import versions
from smoothheads.runs.cluster import Ray
from smoothheads.smoothed import Smoothed
from smoothheads.types import Phase, Pixels

SMALL: Final = 2**14  # bytes of an image that is sent with every request; larger ones lie in Ray's store


@dataclass(frozen=True, slots=True)
class Converted:
    """A converted network, to be written on a node under its hash."""

    sha256: str
    files: dict[str, bytes]

    @classmethod
    def of(cls, found: Artefact) -> Converted:
        names = (*found.files, FACTS)
        return cls(found.sha256, {name: (found.folder / name).read_bytes() for name in names})

    def written(self) -> Artefact:
        """On this machine, once for all its workers; raises CheckpointError for other bytes."""
        root = Path(tempfile.gettempdir()) / f"smoothheads-{os.getuid()}"
        folder = root / self.sha256
        with exclusive(root, wait=True):
            if not folder.exists():
                with new_folder(folder) as partial:
                    for name, data in self.files.items():
                        (partial / name).write_bytes(data)
        return artefact.stored(folder, self.sha256)


@dataclass(frozen=True, slots=True)
class Package:
    """What a worker is made of."""

    model: MultiHead
    info: DataInfo
    config: CertifyConfig
    converted: tuple[Converted, ...]
    probe: Pixels

    @classmethod
    def of(cls, smoothed: Smoothed, probe: Pixels) -> Package:
        converted = tuple(map(Converted.of, smoothed.engine.artefacts))
        return cls(smoothed.model, smoothed.info, smoothed.config, converted, probe)

    def pickled(self) -> bytes:
        try:
            return pickle.dumps(self)
        except Exception as error:  # whatever somebody's own module raises
            raise ConfigError(
                "a network that can be sent to workers", reason(error), "certify without Ray"
            ) from None


class FunctionFacts(NamedTuple):
    """What must be equal for two workers to compute one function."""

    versions: dict[str, str]
    engine: dict[str, Any]
    probe: str
    """Hash of votes and logits on the first block."""

    @classmethod
    def of(cls, engine: Engine, image: Pixels) -> FunctionFacts:
        request = Request(image, 0, Phase.PILOT, 0, engine.noise.block_size * engine.blocks_per_pass)
        found = hashlib.sha256(engine.votes_of([request])[0].counts.tobytes())
        if isinstance(engine, BlockEngine):
            with engine.computing():
                for logits_LNC, _ in engine.logits([request]):
                    found.update(logits_LNC.cpu().numpy().tobytes())
        return cls(versions(), engine.describe(), found.hexdigest())

    def unlike(self, other: FunctionFacts) -> str | None:
        """How `other` differs; none if it does not."""
        pairs = {**self.versions, **self.engine}, {**other.versions, **other.engine}
        names = [name for name in pairs[0] | pairs[1] if pairs[0].get(name) != pairs[1].get(name)]
        if names:
            return ", ".join(f"{name} {pairs[1].get(name)} instead of {pairs[0].get(name)}" for name in names)
        if self.probe != other.probe:
            return "other logits on the first block: its processor or its libraries round otherwise"
        return None


class Ready(NamedTuple):
    process: int
    facts: FunctionFacts
    seconds: float
    """Per block, by one pass."""


class Counted(NamedTuple):
    counts: list[NDArray[np.int64]]
    seconds: float
    work: Work


@dataclass(frozen=True, slots=True)
class Range:
    """Samples of an image, whose noise is keyed; `sha256` is of the pixels."""

    image: Any
    sha256: str
    index: int
    phase: int
    block: int
    count: int


class SentImages:
    """Pixels on their way to the nodes: large ones lie in Ray's store, which brings them to a node once."""

    def __init__(self, ray: Ray) -> None:
        self._ray = ray
        self._sent: dict[int, tuple[Any, str]] = {}

    def ranges(self, requests: Sequence[Request]) -> tuple[list[Range], list[Any]]:
        """As a worker takes them, and what Ray hands to it."""
        ranges, references = [], []
        for request in requests:
            image, sha256 = self._sent.get(request.index) or self._send(request)
            if image is not request.image:
                references.append(image)
                image = len(references) - 1
            ranges.append(Range(image, sha256, request.index, request.phase, request.block, request.count))
        return ranges, references

    def _send(self, request: Request) -> tuple[Any, str]:
        image = request.image
        sent = stored(self._ray, image) if image.nbytes > SMALL else image, digest(image)
        self._sent[request.index] = sent
        return sent

    def drop(self, indices: Iterable[int]) -> None:
        for index in indices:
            self._sent.pop(index, None)


def stored(ray: Ray, value: Any) -> Any:
    try:
        return ray.put(value)
    except ray.exceptions.ObjectStoreFullError:
        size = len(value) if isinstance(value, bytes) else value.nbytes
        raise WorkerError(
            f"room for {size / 2**20:.0f} MiB in Ray's object store",
            "a full one",
            "start the nodes with a larger --object-store-memory",
        ) from None


class Voter:
    """A worker of the cluster. What a user can mend comes back as a value, not raised."""

    def prepare(self, here: dict[str, str], data: bytes) -> Ready | SmoothheadsError:
        """Builds the engine, unless this machine has other versions than the driver."""
        others = {name: got for name, got in versions().items() if here.get(name) != got}
        if others:
            got = ", ".join(f"{name} {value} instead of {here.get(name)}" for name, value in others.items())
            return WorkerError("the versions of the driver", got, "install the same on every node")
        try:
            package: Package = pickle.loads(data)
            given = tuple(each.written() for each in package.converted)
            smoothed = Smoothed(package.model, package.info, package.config, store=Store(given=given))
            self._engine = engine = smoothed.engine
            facts = FunctionFacts.of(engine, package.probe)
            seconds = smoothed.seconds_per_sample() * engine.noise.block_size
            self._fingerprint, self._work = engine.fingerprint(), work_of(engine)
            return Ready(os.getpid(), facts, seconds)
        except SmoothheadsError as error:
            return error

    def votes(self, ranges: Sequence[Range], *images: Pixels) -> Counted | SmoothheadsError:
        """Images that lie in Ray's store are given by their place among `images`."""
        started = time.monotonic()
        try:
            requests = [self._request(each, images) for each in ranges]
            counts = [votes.counts for votes in self._engine.votes_of(requests)]
            require_still(self._fingerprint, self._engine.fingerprint())
        except SmoothheadsError as error:
            return error
        before, self._work = self._work, work_of(self._engine)
        return Counted(counts, time.monotonic() - started, self._work - before)

    def _request(self, of: Range, images: Sequence[Pixels]) -> Request:
        image = images[of.image] if isinstance(of.image, int) else of.image
        if digest(image) != of.sha256:
            raise WorkerError(
                f"image {of.index} as it was sent", "other pixels", "run the same command again"
            )
        return Request(image, of.index, Phase(of.phase), of.block, of.count)


def digest(image: Pixels) -> str:
    """Of what is sent."""
    return hashlib.sha256(image.tobytes()).hexdigest()
