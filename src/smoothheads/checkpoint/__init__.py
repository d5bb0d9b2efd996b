"""A checkpoint is a folder: model.safetensors, config.json, manifest.json. No pickle is ever executed.

Torch is imported only where a network or a training state is loaded, so that commands can read what a
checkpoint is about quickly.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothheads import hub
from smoothheads.config import from_dict, load_json, parse_json, to_dict
from smoothheads.data import DataInfo
from smoothheads.errors import CheckpointError, ConfigError
from smoothheads.files import new_folder, sha256, write_atomic, write_json
from smoothheads.limits import MAX_PIXELS
from smoothheads.models.config import OWN, ModelConfig
from smoothheads.provenance import versions
from smoothheads.training.config import RunConfig

if TYPE_CHECKING:
    from torch import nn

    from smoothheads.models.multihead import MultiHead
    from smoothheads.training.fit import Trained
    from smoothheads.training.loop import TrainState

FORMAT = "smoothheads-checkpoint/1"
WEIGHTS, CONFIG, MANIFEST = "model.safetensors", "config.json", "manifest.json"
FOLDER = "checkpoint"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A network that was loaded, with everything that its folder says about it."""

    model: MultiHead
    config: RunConfig
    info: DataInfo
    weights_hash: str
    """SHA-256 of model.safetensors: the function that a certificate is about."""
    manifest: dict[str, Any]


def checkpoint_folder(place: str | Path) -> Path:
    """Returns the folder of a checkpoint, or of the one inside a training run or an export.

    `hf://user/name[@revision]` stands for a local copy of that repository.
    """
    path = hub.local(place)
    return path / FOLDER if (path / FOLDER).is_dir() else path


def description(folder: Path) -> tuple[RunConfig, DataInfo]:
    """Returns the configuration that the network was trained with, and the facts about its images."""
    data = load_json(folder / CONFIG)
    try:
        return from_dict(RunConfig, data["run"]), from_dict(DataInfo, data["data"], "data")
    except (ConfigError, KeyError) as error:
        raise CheckpointError(
            f"{folder / CONFIG} cannot be read ({error}); open it with the version that wrote it."
        ) from None


def trained_config(place: str | Path) -> RunConfig:
    """Returns the configuration of a training run, finished or not, without loading the network."""
    folder = checkpoint_folder(place)
    if not (folder / CONFIG).is_file():
        raise _no_checkpoint(folder)
    data = load_json(folder / CONFIG)
    return from_dict(RunConfig, data.get("run", data))


def verified_manifest(folder: Path) -> dict[str, Any]:
    """Returns the manifest; raises CheckpointError unless weights and configuration have its hashes."""
    if not folder.is_dir() or not (folder / MANIFEST).is_file():
        raise _no_checkpoint(folder)
    # The manifest vouches for weights and configuration by their hashes.
    manifest = load_json(folder / MANIFEST)
    expected = manifest.get("sha256")
    if manifest.get("format") != FORMAT or not isinstance(expected, dict):
        raise CheckpointError(
            f"{folder / MANIFEST} has the format {manifest.get('format')!r}, not {FORMAT!r}, or no "
            "hashes; open it with the version that wrote it."
        )
    for name in (WEIGHTS, CONFIG):
        if not (folder / name).is_file() or sha256(folder / name) != expected.get(name):
            state = "has another sha256 than its manifest says" if (folder / name).is_file() else "is missing"
            raise CheckpointError(f"{folder / name} {state}; restore the original checkpoint.")
    return manifest


def save(
    folder: str | Path,
    model: MultiHead | Trained,
    config: RunConfig | None = None,
    info: DataInfo | None = None,
    *,
    half: bool = False,
    **facts: Any,
) -> None:
    """Writes the complete checkpoint folder or nothing.

    Args:
        model: What `train` returned, which knows its configuration and data, or a network alone.
        config: The configuration that a network alone was trained with; it must describe that network.
        info: The facts about the images of a network alone.
        half: Store weights in half precision. The checkpoint then is the network with the rounded weights:
            another function than the one that was trained, so certify what `load` returns.
        facts: Further entries of the manifest.
    """
    import safetensors.torch
    import torch

    from smoothheads.training.fit import Trained

    if isinstance(model, Trained):
        seconds = sum(epoch["seconds"] for epoch in model.history)
        facts = {"metrics": model.history[-1] if model.history else {}, "seconds": seconds} | facts
        config, info, model = config or model.config, info or model.info, model.model
    # What is saved must be described: nobody could load it otherwise.
    if config is None or info is None:
        raise CheckpointError(
            "A network alone does not say how it was trained; save what `train` returned, or pass config and "
            "info."
        )
    if config.model.arch != OWN and model.config != config.model:
        built = model.config or "a module of your own"
        raise CheckpointError(
            f"The configuration describes another network ({config.model}) than the one to save "
            f"({built}); pass its own, or ModelConfig(arch='own', heads=..., cut='own')."
        )
    tensors = {name: value.contiguous() for name, value in model.state_dict().items()}
    if half:
        for name, value in tensors.items():
            tensors[name] = value.half() if value.dtype == torch.float32 else value
            if not tensors[name].isfinite().all():
                raise CheckpointError(f"{name} has values beyond half precision; save it without half=True.")
    # The manifest comes last: it holds the hashes of the others.
    with new_folder(Path(folder)) as partial:
        write_atomic(partial / WEIGHTS, safetensors.torch.save(tensors))
        write_json(partial / CONFIG, {"run": to_dict(config), "data": to_dict(info)})
        manifest = {
            "format": FORMAT,
            "sha256": {name: sha256(partial / name) for name in (WEIGHTS, CONFIG)},
            "sigma": config.train.sigma,
            "preset": config.objective.preset,
            "versions": versions(),
        }
        write_json(partial / MANIFEST, manifest | facts)


def load(place: str | Path, model: nn.Module | None = None) -> Checkpoint:
    """Returns the network of a checkpoint; its hashes are checked before anything is parsed.

    Args:
        place: A folder or an address, as `checkpoint_folder` takes them.
        model: The structure of a network of your own, which no registry knows.
    """
    import safetensors.torch
    from safetensors import SafetensorError

    from smoothheads.models.multihead import as_multihead

    # Hashes first, then the description, then the network, then its weights.
    folder = checkpoint_folder(place)
    manifest = verified_manifest(folder)
    config, info = description(folder)
    network = as_multihead(model) if model is not None else _build(config.model, info, folder)
    try:
        tensors = safetensors.torch.load_file(folder / WEIGHTS)
        network.weigh(tensors.get("ensemble_weights"))
        network.load_state_dict(tensors)
    except (SafetensorError, RuntimeError, ConfigError) as error:
        raise CheckpointError(
            f"The weights in {folder} do not fit the network ({str(error).splitlines()[0]}); check {CONFIG}."
        ) from None
    return Checkpoint(network.eval(), config, info, manifest["sha256"][WEIGHTS], manifest)


def save_state(path: Path, state: TrainState, **facts: Any) -> None:
    """Writes a training state for resuming, atomically: tensors, and plain numbers in the file's header."""
    import safetensors.torch

    header = {"meta": json.dumps(state.meta), "facts": json.dumps(facts)}
    tensors = {name: value.contiguous() for name, value in state.tensors.items()}
    write_atomic(path, safetensors.torch.save(tensors, header))


def load_state(path: Path) -> tuple[TrainState, dict[str, Any]]:
    """Returns a training state and the facts that were saved with it."""
    from safetensors import SafetensorError, safe_open

    from smoothheads.training.loop import TrainState

    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        meta, facts = (parse_json(header[key], f"{key} of {path}") for key in ("meta", "facts"))
    except (SafetensorError, OSError, KeyError, ValueError, ConfigError) as error:
        raise CheckpointError(
            f"{path} is not a training state ({error}); train again without --resume."
        ) from None
    return TrainState(tensors, meta), facts


def _no_checkpoint(folder: Path) -> CheckpointError:
    return CheckpointError(f"There is no checkpoint in {folder}; check the path (`train` writes one).")


def _build(config: ModelConfig, info: DataInfo, folder: Path) -> MultiHead:
    """Builds the network that config.json describes, if the weights can be those of such a network."""
    import torch
    from safetensors import SafetensorError, safe_open

    from smoothheads.models import build

    if config.arch == OWN:
        raise CheckpointError(
            f"{folder} holds a module of your own; open it in Python with "
            "smoothheads.load_checkpoint(folder, model=...), or register its architecture."
        )
    facts = {"shape": info.shape, "classes": info.classes, "mean": info.mean, "std": info.std}
    # A line of config.json can ask for any memory: count the weights of the network, without building it, and
    # those of the file. A network has at least one tensor per head.
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            sizes = [math.prod(file.get_slice(name).get_shape()) for name in file.keys()]  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{folder / WEIGHTS} cannot be read ({error}); restore it.") from None
    small = math.prod(info.shape) <= 3 * MAX_PIXELS
    fits = small and config.heads <= len(sizes) and info.classes <= sum(sizes)
    if fits:
        # A sketch on torch's device `meta` has shapes and no values.
        try:
            with torch.device("meta"):
                sketch = build(config, **facts, seed=0)  # type: ignore[arg-type]
            fits = sum(value.numel() for value in sketch.state_dict().values()) <= sum(sizes)
        except (RuntimeError, NotImplementedError):  # too large for torch to count
            fits = False
    if not fits:
        raise CheckpointError(
            f"{folder / CONFIG} describes a larger network (heads: {config.heads}, shape: {info.shape}, "
            f"classes: {info.classes}) than the {sum(sizes):,} weights of {WEIGHTS} can fill; restore the "
            "original checkpoint."
        )
    return build(config, **facts, seed=0)  # type: ignore[arg-type]
