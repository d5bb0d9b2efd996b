"""A checkpoint's folder, read without PyTorch: where it is, whether it is whole, and what it is about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoothheads import hub
from smoothheads.config import from_dict, load_json
from smoothheads.data import DataInfo
from smoothheads.errors import CheckpointError, ConfigError
from smoothheads.files import sha256
from smoothheads.training.config import RunConfig

FORMAT = "smoothheads-checkpoint/1"
WEIGHTS, CONFIG, MANIFEST = "model.safetensors", "config.json", "manifest.json"
FOLDER = "checkpoint"


def checkpoint_folder(place: str | Path) -> Path:
    """A checkpoint, or the one inside the folder of a training run or an export; `hf://user/name[@revision]`
    stands for a copy of what is there."""
    path = hub.local(place)
    return path / FOLDER if (path / FOLDER).is_dir() else path


def description(folder: Path) -> tuple[RunConfig, DataInfo]:
    """What the network was trained with, and what images it takes."""
    data = load_json(folder / CONFIG)
    try:
        return from_dict(RunConfig, data["run"]), from_dict(DataInfo, data["data"], "data")
    except (ConfigError, KeyError) as error:
        raise CheckpointError(
            f"a readable {CONFIG} in {folder}", str(error), "use the version that wrote it"
        ) from None


def trained_config(place: str | Path) -> RunConfig:
    """What a network was trained with, read without loading it; also of a run that is not finished."""
    folder = checkpoint_folder(place)
    if not (folder / CONFIG).is_file():
        raise CheckpointError(
            f"a checkpoint folder at {folder}", "none", "check the path; `train` writes one"
        )
    data = load_json(folder / CONFIG)
    return from_dict(RunConfig, data.get("run", data))


def verified_manifest(folder: Path) -> dict[str, Any]:
    """What the manifest says; raises CheckpointError unless the weights and the config have its hashes."""
    if not folder.is_dir() or not (folder / MANIFEST).is_file():
        raise CheckpointError(
            f"a checkpoint folder at {folder}", "none", "check the path; `train` writes one"
        )
    try:
        manifest = load_json(folder / MANIFEST)
        expected = dict(manifest["sha256"])
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"a manifest in {folder}", str(error), "restore the checkpoint") from None
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"format {FORMAT}", repr(manifest.get("format")), "use the version that wrote it"
        )
    for name in (WEIGHTS, CONFIG):
        got = sha256(folder / name) if (folder / name).is_file() else "no file"
        if got != expected.get(name):
            raise CheckpointError(
                f"{name} with sha256 {str(expected.get(name))[:12]}...",
                f"{got[:12]}",
                "restore the original checkpoint",
            )
    return manifest
