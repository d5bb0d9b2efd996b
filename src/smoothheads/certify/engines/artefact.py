"""Networks converted for OpenVINO, kept in a folder under the hash of what they were made of.

A converted network is a base classifier of its own, a quantised one all the more: the certificate is for
exactly these bytes, and whoever deploys it must run them.
"""

from __future__ import annotations

import fcntl
import hashlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothheads.certify.soundness import fingerprint
from smoothheads.config import load_json
from smoothheads.errors import CheckpointError, ConfigError
from smoothheads.files import LOCK, new_folder, storage, write_json
from smoothheads.models.multihead import MultiHead

FORMAT = "smoothheads-openvino/1"
MODEL, WEIGHTS, FACTS = "model.xml", "model.bin", "artefact.json"

Facts = dict[str, Any]
Build = Callable[[Path], Facts]
"""Writes MODEL and WEIGHTS into a folder and says how they were made."""


@dataclass(frozen=True, slots=True)
class Artefact:
    folder: Path
    sha256: str
    """Of MODEL and WEIGHTS together."""
    facts: Facts

    @property
    def model(self) -> Path:
        return self.folder / MODEL

    def describe(self) -> Facts:
        return {"sha256": self.sha256, "made_with": self.facts["versions"]}


Artefacts = tuple[Artefact, ...]
"""All that an engine runs: one network, or the two parts of a lazy consensus."""


def identity(model: MultiHead, shape: tuple[int, int, int]) -> Facts:
    """What tells this network from any other."""
    weights = fingerprint(model)
    network = hashlib.sha256(f"{weights} {shape} {model!r}".encode()).hexdigest()
    return {"format": FORMAT, "weights": weights, "network": network}


def obtain(root: Path, name: str, wanted: Facts, build: Build) -> Artefact:
    """The artefact under `root`, built if it is not there; when several processes ask, one of them builds.

    Raises CheckpointError for one that is damaged or was made of something else.
    """
    folder = root / wanted["network"][:16] / name
    with _one_at_a_time(folder.parent):
        if not folder.exists():
            with new_folder(folder) as partial:
                made = build(partial)
                write_json(partial / FACTS, wanted | made | {"sha256": _digest(partial)})
        return _verified(folder, wanted, f"delete {folder} to have it made again")


def find(roots: Iterable[Path], sha256: str) -> Artefact:
    """The artefact of exactly these bytes, wherever it lies under `roots`; nothing is converted for it."""
    searched = list(roots)
    there = [path.parent for root in searched for path in sorted(root.glob(f"*/*/{MODEL}"))]
    for folder in there:
        if (folder / WEIGHTS).is_file() and _digest(folder) == sha256:
            return stored(folder, sha256)
    raise CheckpointError(
        f"the converted network with sha256 {sha256[:12]}... in {' or '.join(map(str, searched))}",
        f"others ({', '.join(folder.name for folder in there)})" if there else "none",
        "restore it, or certify again into a new ledger",
    )


def stored(folder: Path, sha256: str) -> Artefact:
    """The artefact in a folder; raises CheckpointError unless it has that hash."""
    remedy = "restore the original files"
    found = _verified(folder, {}, remedy)
    if found.sha256 != sha256:
        raise CheckpointError(
            f"a converted network with sha256 {sha256[:12]}... in {folder}", found.sha256[:12], remedy
        )
    return found


def _verified(folder: Path, wanted: Facts, remedy: str) -> Artefact:
    try:
        facts, digest = load_json(folder / FACTS), _digest(folder)
    except (ConfigError, OSError) as error:
        raise CheckpointError(f"a converted network in {folder}", str(error), remedy) from None
    for key, value in (wanted | {"sha256": digest}).items():
        if facts.get(key) != value:
            raise CheckpointError(
                f"{key} {str(value)[:40]} in {folder}", str(facts.get(key, "nothing"))[:40], remedy
            )
    return Artefact(folder, digest, facts)


def _digest(folder: Path) -> str:
    return hashlib.sha256((folder / MODEL).read_bytes() + (folder / WEIGHTS).read_bytes()).hexdigest()


@contextmanager
def _one_at_a_time(folder: Path) -> Iterator[None]:
    with storage(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / LOCK).open("a")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)  # waits; the system frees it if the holder is killed
        yield
