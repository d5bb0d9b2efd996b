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
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from smoothheads.certify.soundness import weights_fingerprint
from smoothheads.config import load_json
from smoothheads.errors import CheckpointError, ConfigError
from smoothheads.files import exclusive, new_folder, write_json

if TYPE_CHECKING:
    from smoothheads.data import Dataset
    from smoothheads.models.multihead import MultiHead

OPENVINO: Final = "smoothheads-openvino/2"
ONNX: Final = "smoothheads-onnx/1"
FACTS: Final = "artefact.json"
FILES: Final = {OPENVINO: ("model.xml", "model.bin"), ONNX: ("model.onnx",)}
"""The files of a converted network by its format, the network first."""

Facts: TypeAlias = dict[str, Any]
Build: TypeAlias = Callable[[Path], Facts]
"""Writes the files into a folder and returns facts about how they were made."""


@dataclass(frozen=True, slots=True)
class ConvertedModel:
    folder: Path
    sha256: str
    """Hash of the hashes of its files."""
    facts: Facts

    @property
    def model(self) -> Path:
        return self.folder / self.files[0]

    @property
    def files(self) -> tuple[str, ...]:
        """The files of the network; FACTS lies in the same folder."""
        return FILES[self.facts["format"]]

    def describe(self) -> Facts:
        return {"sha256": self.sha256, "made_with": self.facts.get("versions", {})}


@dataclass(frozen=True, slots=True)
class ConversionCache:
    """Where engines keep networks that they convert, and what they need to convert one."""

    folder: Path | None = None
    """None: networks are converted anew, and nothing is left behind."""
    training: Callable[[], Dataset] | None = None
    """Returns the training images that int8 is calibrated with, if they are needed."""
    given: tuple[ConvertedModel, ...] = ()
    """A converted network to run; nothing is converted then."""
    on_progress: Callable[[int, int], None] | None = None
    """Called with how many of how many calibration images are read, in every round."""

    @contextmanager
    def opened(self) -> Iterator[Path]:
        if self.folder is not None:
            yield self.folder
            return
        with tempfile.TemporaryDirectory() as folder:
            yield Path(folder)


def identify(model: MultiHead, shape: tuple[int, int, int], made_by: str) -> Facts:
    """Returns what tells this network from any other."""
    weights = weights_fingerprint(model)
    network = hashlib.sha256(f"{weights} {shape} {model!r}".encode()).hexdigest()
    return {"format": made_by, "weights": weights, "network": network}


def obtain(root: Path, name: str, identity: Facts, build: Build) -> ConvertedModel:
    """Returns the converted network under `root`, which is built if it is not there.

    If several processes ask, one of them builds. Raises CheckpointError for one that is damaged or was made
    of something else.
    """
    folder = root / identity["network"][:16] / name
    with exclusive(folder.parent, wait=True):
        if not folder.exists():
            with new_folder(folder) as partial:
                made = build(partial)
                facts = identity | made | {"sha256": _digest(partial, identity["format"])}
                write_json(partial / FACTS, facts)
        return _verified(folder, identity, f"delete {folder} to have it made again")


def find(roots: Iterable[Path], sha256: str) -> ConvertedModel:
    """Returns the converted network of exactly these bytes, wherever it lies under `roots`."""
    searched = list(roots)
    folders = [path.parent for root in searched for path in sorted(root.glob(f"*/*/{FACTS}"))]
    for folder in folders:
        formats = [made_by for made_by, names in FILES.items() if all((folder / n).is_file() for n in names)]
        if sha256 in (_digest(folder, made_by) for made_by in formats):
            return load_converted(folder, sha256)
    raise CheckpointError(
        f"There is no converted network with sha256 {sha256[:12]}... in {' or '.join(map(str, searched))}, "
        f"only {len(folders)} others: restore it, or certify again into a new ledger."
    )


def load_converted(folder: Path, sha256: str) -> ConvertedModel:
    """Returns the converted network in a folder; raises CheckpointError unless it has that hash."""
    loaded = _verified(folder, {}, "restore the original files")
    if loaded.sha256 != sha256:
        raise CheckpointError(
            f"The converted network in {folder} has sha256 {loaded.sha256[:12]}... instead of "
            f"{sha256[:12]}...: restore the original files."
        )
    return loaded


def _verified(folder: Path, identity: Facts, remedy: str) -> ConvertedModel:
    try:
        facts = load_json(folder / FACTS)
        made_by = facts["format"] if facts.get("format") in list(FILES) else OPENVINO
        digest = _digest(folder, made_by)
    except (ConfigError, OSError) as error:
        raise CheckpointError(f"There is no converted network in {folder} ({error}): {remedy}.") from None
    for key, value in (identity | {"format": made_by, "sha256": digest}).items():
        if facts.get(key) != value:
            raise CheckpointError(
                f"The converted network in {folder} states {key} {str(facts.get(key, 'nothing'))[:40]} "
                f"instead of {str(value)[:40]}: {remedy}."
            )
    return ConvertedModel(folder, digest, facts)


def _digest(folder: Path, made_by: str) -> str:
    names = FILES[made_by]
    lines = [f"{name} {hashlib.sha256((folder / name).read_bytes()).hexdigest()}" for name in names]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
