"""Trained networks that come with the package: `zoo:NAME` stands for one wherever a checkpoint is taken.

A classifier is an export, so that the ledger that proves its numbers comes along; a denoiser and a network
that was trained without noise are plain checkpoints. The index `zoo.json` names them all. Their files lie in
`zoo/NAME` of a checkout or, so that an installed wheel has them too, in the package (`zoo_files/NAME`). The
index holds the hash of the file that lists all other hashes: SHA256SUMS of an export, manifest.json of a
checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from smoothheads.errors import CheckpointError, suggest
from smoothheads.files import sha256

SCHEME: Final = "zoo:"
SUMS: Final = "SHA256SUMS"
MANIFEST: Final = "manifest.json"
INDEX: Final = Path(__file__).with_name("zoo.json")
PACKAGE: Final = Path(__file__).with_name("zoo_files")
CHECKOUT: Final = Path(__file__).parents[2] / "zoo"
"""The folders that hold the files: in the package and in a checkout."""


@dataclass(frozen=True, slots=True)
class ZooEntry:
    """A network of the zoo."""

    name: str
    sha256: str
    """Hash of its SHA256SUMS or, without a ledger, of its manifest.json."""
    size: int
    """Bytes of all its files."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Sigma, images, ACR and certified accuracy by radius of its ledger, or its validation in training."""
    command: str = ""
    """The command that trained it."""
    cost: str = ""
    """The cost of its training, in words."""

    @property
    def certified(self) -> bool:
        """Returns whether it is an export with a ledger, and not a bare checkpoint."""
        return "certified" in self.metrics


def entries() -> dict[str, ZooEntry]:
    """Returns all networks by name, in the order of the index."""
    return {each["name"]: ZooEntry(**each) for each in json.loads(INDEX.read_text())}


def installed(name: str) -> Path | None:
    """Returns the folder of a network, or None if this installation has only its line in the index."""
    return next((root / name for root in (PACKAGE, CHECKOUT) if (root / name).is_dir()), None)


def find(place: str | Path) -> Path:
    """Returns the folder of `zoo:NAME`; raises CheckpointError unless every file has its hash."""
    name = str(place).removeprefix(SCHEME)
    known = entries()
    if name not in known:
        raise CheckpointError(f"The zoo has no {name!r}: {suggest(name, known)}")
    folder = installed(name)
    if folder is None:
        raise CheckpointError(
            f"The files of zoo:{name} are not in this installation; clone the repository and run "
            "`pip install -e .` there."
        )
    # The index vouches for the list of hashes, and the list for every file.
    listing = SUMS if known[name].certified else MANIFEST
    check_hashes(folder, {listing: known[name].sha256}, name)
    check_hashes(folder, listed_hashes(folder), name)
    return folder


def listed_hashes(folder: Path) -> dict[str, str]:
    """Returns the hashes by file that an export or a checkpoint lists."""
    if (folder / SUMS).is_file():
        lines = (folder / SUMS).read_text().splitlines()
        return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if not (folder / MANIFEST).is_file():
        raise CheckpointError(f"{folder} is neither an export nor a checkpoint; name one of the two.")
    return dict(json.loads((folder / MANIFEST).read_bytes())["sha256"])


def check_hashes(folder: Path, hashes: dict[str, str], name: str) -> None:
    """Raises CheckpointError unless every file of the network `name` has its hash."""
    for file, digest in hashes.items():
        if not (folder / file).is_file() or sha256(folder / file) != digest:
            raise CheckpointError(
                f"{file} of zoo:{name} is missing or has another hash than listed; restore it from the "
                "repository."
            )
