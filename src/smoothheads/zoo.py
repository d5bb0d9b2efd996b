"""Trained networks that come with the package: `zoo:NAME` stands for one wherever a checkpoint is taken.

A classifier is an export, so that the ledger that proves its numbers comes along; a denoiser and a network
that was trained without noise are plain checkpoints. The index `zoo.json` names them all. Their files lie in
`zoo/NAME` of a checkout or, so that an installed wheel has them too, in the package (`zoo_files/NAME`). The
index holds the hash of the file that lists all other hashes: SHA256SUMS of an export, manifest.json of a
checkpoint.

`python -m smoothheads.zoo FOLDER NAME COMMAND` enters a network.
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
MANIFEST: Final = "manifest.json"
INDEX: Final = Path(__file__).with_name("zoo.json")
PACKAGE: Final = Path(__file__).with_name("zoo_files")
CHECKOUT: Final = Path(__file__).parents[2] / "zoo"
"""The folders that hold the files: in the package, which has room for `WHEEL` bytes, and in a checkout."""
WHEEL: Final = 5_000_000


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
    _check(folder, {listing: known[name].sha256}, name)
    _check(folder, _hashes(folder), name)
    return folder


def add(folder: Path, name: str, *, command: str, cost: str = "", wheel: bool = False) -> Path:
    """Copies a network into the zoo of this checkout, enters it into the index, and returns its folder there.

    Args:
        folder: What `smoothheads export` wrote, or a checkpoint without a ledger, such as a denoiser.
        name: The name of the network, for example cifar10-some-0.25.
        command: The command that trained it.
        cost: The cost of its training, in words; by default the hours that its training took.
        wheel: Put it into the package, so that an installed wheel has it too.
    """
    root, others = (
        PACKAGE if wheel else CHECKOUT,
        {key: each for key, each in entries().items() if key != name},
    )
    # All files that its list names, and the list itself.
    hashes = _hashes(folder)
    files = [*hashes, SUMS if (folder / SUMS).is_file() else MANIFEST]
    size = sum((folder / file).stat().st_size for file in files)
    if wheel and size + sum(each.size for each in others.values() if (PACKAGE / each.name).is_dir()) > WHEEL:
        raise CheckpointError(
            f"With {name} the networks in the wheel exceed {WHEEL / 1e6:g} MB; leave out --wheel, or take "
            "another one out of zoo_files."
        )
    _check(folder, hashes, name)
    metrics = _metrics(folder)
    if wheel and metrics.get("engine", "torch") != "torch":
        raise CheckpointError(
            f"{name} was certified with {metrics['engine']}, which an installed wheel need not have; "
            "certify with --engine torch, or leave out --wheel."
        )
    if folder.resolve() != (root / name).resolve():  # else it is already there, and only the index is written
        with new_folder(root / name) as partial:
            for file in files:
                (partial / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(folder / file, partial / file)
    # What it is good for comes from its own files; only the command is told.
    network = root / name / "checkpoint" if SUMS in files else root / name
    seconds = json.loads((network / MANIFEST).read_bytes()).get("seconds", 0)
    cost = cost or (f"{seconds / 3600:.1f} h" if seconds else "")
    entry = ZooEntry(name, sha256(root / name / files[-1]), size, metrics, command, cost)
    write_atomic(INDEX, json.dumps([asdict(each) for each in (*others.values(), entry)], indent=2) + "\n")
    return root / name


def _hashes(folder: Path) -> dict[str, str]:
    """Returns the hashes by file that an export or a checkpoint lists."""
    if (folder / SUMS).is_file():
        lines = (folder / SUMS).read_text().splitlines()
        return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}
    if not (folder / MANIFEST).is_file():
        raise CheckpointError(f"{folder} is neither an export nor a checkpoint; name one of the two.")
    return dict(json.loads((folder / MANIFEST).read_bytes())["sha256"])


def _metrics(folder: Path) -> dict[str, Any]:
    """Returns what the ledger of an export shows, or the training of a bare checkpoint."""
    if not (folder / SUMS).is_file():
        manifest = json.loads((folder / MANIFEST).read_bytes())
        data = json.loads((folder / "config.json").read_bytes())["data"]["name"]
        validation = manifest.get("metrics", {}).get("validation", {})
        return {"data": data, "sigma": manifest["sigma"], "validation": validation}
    summary = json.loads((folder / "export.json").read_bytes())["summary"]
    metrics = {key: summary[key] for key in ("data", "sigma", "images", "norm", "engine")}
    certified = {f"{each['radius']:g}": round(each["value"], 4) for each in summary["certified"]}
    return metrics | {"acr": round(summary["acr"]["value"], 4), "certified": certified}


def _check(folder: Path, hashes: dict[str, str], name: str) -> None:
    for file, digest in hashes.items():
        if not (folder / file).is_file() or sha256(folder / file) != digest:
            raise CheckpointError(
                f"{file} of zoo:{name} is missing or has another hash than listed; restore it from the "
                "repository."
            )


if __name__ == "__main__":
    import tyro

    print(tyro.cli(add, prog="python -m smoothheads.zoo", config=(tyro.conf.PositionalRequiredArgs,)))
