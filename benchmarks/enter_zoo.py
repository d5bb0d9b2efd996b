"""Copies a trained network into the zoo of this checkout and enters it into the index.

python -m benchmarks.enter_zoo FOLDER NAME COMMAND [--cost TEXT] [--wheel]
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import tyro

from smoothheads import zoo
from smoothheads.errors import CheckpointError
from smoothheads.files import new_folder, sha256, write_atomic

WHEEL: Final = 5_000_000
"""Bytes of all networks for which the package has room."""


def enter(folder: Path, name: str, *, command: str, cost: str = "", wheel: bool = False) -> Path:
    """Copies a network into the zoo of this checkout, enters it into the index, and returns its folder there.

    Args:
        folder: What `smoothheads export` wrote, or a checkpoint without a ledger, such as a denoiser.
        name: The name of the network, for example cifar10-some-0.25.
        command: The command that trained it.
        cost: The cost of its training, in words; by default the hours that its training took.
        wheel: Put it into the package, so that an installed wheel has it too.
    """
    root = zoo.PACKAGE if wheel else zoo.CHECKOUT
    others = {key: each for key, each in zoo.entries().items() if key != name}
    # All files that its list names, and the list itself.
    hashes = zoo.listed_hashes(folder)
    files = [*hashes, zoo.SUMS if (folder / zoo.SUMS).is_file() else zoo.MANIFEST]
    size = sum((folder / file).stat().st_size for file in files)
    in_wheel = sum(each.size for each in others.values() if (zoo.PACKAGE / each.name).is_dir())
    if wheel and size + in_wheel > WHEEL:
        raise CheckpointError(
            f"With {name} the networks in the wheel exceed {WHEEL / 1e6:g} MB; leave out --wheel, or take "
            "another one out of zoo_files."
        )
    zoo.check_hashes(folder, hashes, name)
    metrics = metrics_of(folder)
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
    network = root / name / "checkpoint" if zoo.SUMS in files else root / name
    seconds = json.loads((network / zoo.MANIFEST).read_bytes()).get("seconds", 0)
    cost = cost or (f"{seconds / 3600:.1f} h" if seconds else "")
    entry = zoo.ZooEntry(name, sha256(root / name / files[-1]), size, metrics, command, cost)
    write_atomic(zoo.INDEX, json.dumps([asdict(each) for each in (*others.values(), entry)], indent=2) + "\n")
    return root / name


def metrics_of(folder: Path) -> dict[str, Any]:
    """Returns what the ledger of an export shows, or the training of a bare checkpoint."""
    if not (folder / zoo.SUMS).is_file():
        manifest = json.loads((folder / zoo.MANIFEST).read_bytes())
        data = json.loads((folder / "config.json").read_bytes())["data"]["name"]
        validation = manifest.get("metrics", {}).get("validation", {})
        return {"data": data, "sigma": manifest["sigma"], "validation": validation}
    summary = json.loads((folder / "export.json").read_bytes())["summary"]
    metrics = {key: summary[key] for key in ("data", "sigma", "images", "norm", "engine")}
    certified = {f"{each['radius']:g}": round(each["value"], 4) for each in summary["certified"]}
    return metrics | {"acr": round(summary["acr"]["value"], 4), "certified": certified}


if __name__ == "__main__":
    print(tyro.cli(enter, description=__doc__, config=(tyro.conf.PositionalRequiredArgs,)))
