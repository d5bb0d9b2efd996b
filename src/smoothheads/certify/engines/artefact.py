"""Networks converted for an engine, kept in a folder under the hash of what they were made of.

A converted network is a base classifier of its own, a quantised one all the more: the certificate is for
exactly these bytes, and whoever deploys it must run them.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from smoothheads.certify.soundness import fingerprint
from smoothheads.config import load_json
from smoothheads.errors import CheckpointError, ConfigError
from smoothheads.files import exclusive, new_folder, write_json

if TYPE_CHECKING:
    from smoothheads.data import Dataset
    from smoothheads.models.multihead import MultiHead

FORMAT = "smoothheads-openvino/2"
FORMAT_1 = "smoothheads-openvino/1"
"""Its hash was that of both files joined, so that a byte could have moved from one to the other."""
ONNX = "smoothheads-onnx/1"
MODEL, WEIGHTS, FACTS = "model.xml", "model.bin", "artefact.json"
FILES: Final = {FORMAT: (MODEL, WEIGHTS), FORMAT_1: (MODEL, WEIGHTS), ONNX: ("model.onnx",)}
"""What an artefact of a format consists of, the network first."""

Facts = dict[str, Any]
Build = Callable[[Path], Facts]
"""Writes the files into a folder and says how they were made."""


@dataclass(frozen=True, slots=True)
class Artefact:
    folder: Path
    sha256: str
    """Of the hashes of its files."""
    facts: Facts

    @property
    def model(self) -> Path:
        return self.folder / self.files[0]

    @property
    def files(self) -> tuple[str, ...]:
        """Of the network; FACTS lies beside them."""
        return FILES[self.facts["format"]]

    def describe(self) -> Facts:
        return {"sha256": self.sha256, "made_with": self.facts.get("versions", {})}


Artefacts = tuple[Artefact, ...]
"""All that an engine runs: one network, or the two parts of a lazy consensus."""

Training = Callable[[], "Dataset"]
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Store:
    """Where engines keep networks that they convert, and what they need to convert one."""

    folder: Path | None = None
    """None: they are made anew, and nothing is left behind."""
    training: Training | None = None
    """Gives the images that int8 is calibrated with, if it is not there yet."""
    given: Artefacts = ()
    """Those to run; nothing is converted then."""
    on_progress: OnProgress | None = None
    """Told how many of the images that int8 is calibrated with are read, of how many, in every round."""

    @contextmanager
    def opened(self) -> Iterator[Path]:
        if self.folder is not None:
            yield self.folder
            return
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)


def identity(model: MultiHead, shape: tuple[int, int, int], made_by: str = FORMAT) -> Facts:
    """What tells this network from any other."""
    weights = fingerprint(model)
    network = hashlib.sha256(f"{weights} {shape} {model!r}".encode()).hexdigest()
    return {"format": made_by, "weights": weights, "network": network}


def obtain(root: Path, name: str, wanted: Facts, build: Build) -> Artefact:
    """The artefact under `root`, built if it is not there; when several processes ask, one of them builds.

    Raises CheckpointError for one that is damaged or was made of something else.
    """
    folder = root / wanted["network"][:16] / name
    with exclusive(folder.parent, wait=True):
        if not folder.exists():
            with new_folder(folder) as partial:
                made = build(partial)
                write_json(partial / FACTS, wanted | made | {"sha256": _digest(partial, wanted["format"])})
        return _verified(folder, wanted, f"delete {folder} to have it made again")


def find(roots: Iterable[Path], sha256: str) -> Artefact:
    """The artefact of exactly these bytes, wherever it lies under `roots`; nothing is converted for it."""
    searched = list(roots)
    there = [path.parent for root in searched for path in sorted(root.glob(f"*/*/{FACTS}"))]
    for folder in there:
        possible = [made_by for made_by, names in FILES.items() if all((folder / n).is_file() for n in names)]
        if sha256 in (_digest(folder, made_by) for made_by in possible):
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
        facts = load_json(folder / FACTS)
        made_by = facts["format"] if facts.get("format") in list(FILES) else FORMAT
        digest = _digest(folder, made_by)
    except (ConfigError, OSError) as error:
        raise CheckpointError(f"a converted network in {folder}", str(error), remedy) from None
    for key, value in (wanted | {"format": made_by, "sha256": digest}).items():
        if facts.get(key) != value:
            raise CheckpointError(
                f"{key} {str(value)[:40]} in {folder}", str(facts.get(key, "nothing"))[:40], remedy
            )
    return Artefact(folder, digest, facts)


def _digest(folder: Path, made_by: str) -> str:
    """The hash as that format has it; none for a joined one whose MODEL does not end where it should."""
    parts = {name: (folder / name).read_bytes() for name in FILES[made_by]}
    if made_by == FORMAT_1:
        whole = parts[MODEL].rstrip().endswith(b"</net>")
        return hashlib.sha256(parts[MODEL] + parts[WEIGHTS]).hexdigest() if whole else "none"
    lines = [f"{name} {hashlib.sha256(data).hexdigest()}" for name, data in parts.items()]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
