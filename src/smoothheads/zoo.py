"""Trained classifiers that come with the package: `zoo:NAME` stands for one wherever a checkpoint is taken.

Each is an export, so that the ledger that proves its numbers comes along. The index `zoo.json` in the package
names them all; the files are in the package (`zoo_files/NAME`) or, if they are too large for that, in
`zoo/NAME` of a checkout. The index holds the hash of every SHA256SUMS, which holds those of the files.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from smoothheads.errors import CheckpointError, suggest
from smoothheads.files import new_folder, sha256, write_atomic

SCHEME: Final = "zoo:"
SUMS: Final = "SHA256SUMS"
INDEX: Final = Path(__file__).with_name("zoo.json")
PLACES: Final = (Path(__file__).with_name("zoo_files"), Path(__file__).parents[2] / "zoo")
"""Folders that may hold the files of a classifier: in the package, or in a checkout."""


@dataclass(frozen=True, slots=True)
class ZooEntry:
    """A classifier of the zoo."""

    name: str
    sha256: str
    """Hash of its SHA256SUMS."""
    size: int
    """Bytes of all its files."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """What its ledger shows: sigma, number of images, ACR and certified accuracy at radii."""
    command: str = ""
    """The command that trained it."""
    cost: str = ""
    """The cost of its training, in words."""


def entries() -> dict[str, ZooEntry]:
    """Returns all classifiers by name, in the order of the index."""
    return {each["name"]: ZooEntry(**each) for each in json.loads(INDEX.read_text())}


def find(place: str | Path) -> Path:
    """Returns the folder of `zoo:NAME`; raises CheckpointError unless every file has its hash."""
    name = str(place).removeprefix(SCHEME)
    known = entries()
    if name not in known:
        remedy = suggest(name, known) if known else "it is empty in this version."
        raise CheckpointError(f"The zoo has no {name!r}: {remedy}")
    folder = next((root / name for root in PLACES if (root / name).is_dir()), None)
    if folder is None:
        raise CheckpointError(
            f"The files of zoo:{name} are not in this installation; clone the repository and run "
            "`pip install -e .` there."
        )
    # The index vouches for the list, and the list for every file.
    _check(folder, {SUMS: known[name].sha256}, name)
    lines = (folder / SUMS).read_text().splitlines()
    _check(folder, {line.partition("  ")[2]: line.partition("  ")[0] for line in lines}, name)
    return folder


def add(export: Path | str, name: str, *, command: str, cost: str = "", root: Path = PLACES[1]) -> Path:
    """Copies an export into the zoo of a checkout, enters it into the index, and returns its folder.

    Args:
        export: a folder that `smoothheads export` wrote. To halve its size, save the checkpoint with
            half=True before certifying it.
        name: the name of the classifier, for example cifar10-some-0.25.
        command: the command that trained it.
        cost: the cost of its training, in words, for example "2.1 h on two cores".
        root: the folder that holds the files: `zoo/` of the checkout, or `zoo_files/` of the package.
    """
    export = Path(export)
    files = [line.partition("  ")[2] for line in (export / SUMS).read_text().splitlines()]
    with new_folder(root / name) as partial:
        for file in (*files, SUMS):
            (partial / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(export / file, partial / file)
    summary = json.loads((export / "export.json").read_bytes())["summary"]
    metrics = {key: summary[key] for key in ("data", "sigma", "images", "norm")}
    metrics["acr"] = round(summary["acr"]["value"], 4)
    metrics["certified"] = {f"{each['radius']:g}": round(each["value"], 4) for each in summary["certified"]}
    size = sum((root / name / file).stat().st_size for file in (*files, SUMS))
    entry = ZooEntry(name, sha256(root / name / SUMS), size, metrics, command, cost)
    known = entries() | {name: entry}
    write_atomic(INDEX, json.dumps([asdict(each) for each in known.values()], indent=2) + "\n")
    return root / name


def _check(folder: Path, hashes: dict[str, str], name: str) -> None:
    for file, digest in hashes.items():
        if not (folder / file).is_file() or sha256(folder / file) != digest:
            raise CheckpointError(
                f"{file} of zoo:{name} is missing or has another hash than the index says; restore it from "
                "the repository."
            )
