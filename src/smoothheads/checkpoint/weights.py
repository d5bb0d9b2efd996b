"""A checkpoint is a folder: model.safetensors, config.json, manifest.json. No pickle is ever executed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor, nn

from smoothheads.checkpoint.folder import (
    CONFIG,
    FORMAT,
    MANIFEST,
    WEIGHTS,
    checkpoint_folder,
    description,
    verified_manifest,
)
from smoothheads.config import to_dict
from smoothheads.data import DataInfo
from smoothheads.errors import CheckpointError, ConfigError
from smoothheads.files import new_folder, sha256, write_atomic, write_json
from smoothheads.models import ModelConfig, build
from smoothheads.models.config import OWN
from smoothheads.models.multihead import MultiHead, as_multihead
from smoothheads.provenance import versions
from smoothheads.training import RunConfig
from smoothheads.training.fit import Trained


@dataclass(frozen=True, slots=True)
class Checkpoint:
    model: MultiHead
    config: RunConfig
    info: DataInfo
    weights_hash: str
    """sha256 of model.safetensors: which function a certificate is about."""
    manifest: dict[str, Any]


def save(
    folder: str | Path,
    model: MultiHead | Trained,
    config: RunConfig | None = None,
    info: DataInfo | None = None,
    **facts: Any,
) -> None:
    """Writes the whole folder or nothing; `facts` (such as the last metrics) go into the manifest.

    What `train` returned knows its configuration and data; a network alone has to be told them, and the
    configuration has to be that of the network.
    """
    if isinstance(model, Trained):
        seconds = sum(epoch["seconds"] for epoch in model.history)
        facts = {"metrics": model.history[-1] if model.history else {}, "seconds": seconds} | facts
        config, info, model = config or model.config, info or model.info, model.model
    if config is None or info is None:
        raise CheckpointError(
            "what the network was trained with", "none", "save what `train` returned, or pass config and info"
        )
    _require_own_description(model, config.model)
    folder = Path(folder)
    tensors: dict[str, Tensor] = {name: value.contiguous() for name, value in model.state_dict().items()}
    with new_folder(folder) as partial:
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


def _require_own_description(model: MultiHead, config: ModelConfig) -> None:
    """A checkpoint must not say that it holds another network than it does."""
    if config.arch == OWN or model.config == config:
        return
    if model.config is None:
        raise CheckpointError(
            f"arch {OWN!r} for a network of one's own",
            repr(config.arch),
            "save what `train` returned, or describe it as ModelConfig(arch='own', heads=..., cut='own')",
        )
    raise CheckpointError(
        f"the network's own description ({model.config})", str(config), "pass the one it was built by"
    )


def load(place: str | Path, model: nn.Module | None = None) -> Checkpoint:
    """Rebuilds the network at a place, as `checkpoint_folder` takes them, and fills it; hashes are checked
    before anything is parsed.

    `model` gives the structure of a network that the registry does not know.
    """
    folder = checkpoint_folder(place)
    manifest = verified_manifest(folder)
    config, info = description(folder)
    network = as_multihead(model) if model is not None else _build(config.model, info, folder)
    _fill(network, folder)
    return Checkpoint(network.eval(), config, info, manifest["sha256"][WEIGHTS], manifest)


def _build(config: ModelConfig, info: DataInfo, folder: Path) -> MultiHead:
    if config.arch == OWN:
        raise CheckpointError(
            f"the structure of the network in {folder}",
            "a checkpoint of somebody's own module",
            "pass it: load(folder, model=...)",
        )
    return build(config, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=0)


def _fill(model: MultiHead, folder: Path) -> None:
    try:
        tensors = safetensors.torch.load_file(folder / WEIGHTS)
        model.weigh(tensors.get("ensemble_weights"))
        model.load_state_dict(tensors)
    except (SafetensorError, RuntimeError, ConfigError) as error:
        reason = str(error).splitlines()[0]
        raise CheckpointError(
            f"weights of this network in {folder}", reason, "check config.json against it"
        ) from None
