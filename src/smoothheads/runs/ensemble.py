"""Checkpoints of separate networks become one checkpoint, with learned weights if asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from smoothheads import checkpoint, seeding
from smoothheads.config import DataConfig, SubsetConfig
from smoothheads.config.check import at_least
from smoothheads.data import Dataset, load, plain_batches, select
from smoothheads.errors import ConfigError
from smoothheads.models import MultiHead, fit_weights
from smoothheads.models.mode import borrowed_mode
from smoothheads.objectives.base import noisy_copies
from smoothheads.runs.layout import open_checkpoint, require_new

IMAGES = 5000  # a handful of weights needs no more


def ensemble_run(
    folders: Sequence[Path],
    out: Path,
    *,
    learn_weights: bool = False,
    root: str | None = None,
    draws: int = 10,
    device: torch.device | str = "cpu",
) -> Path:
    """Writes the joined checkpoint to `out`; its manifest names the members by the hashes of their weights.

    Weights are learned under the noise of training on validation images, or where none were held out on
    training images; `root` says where the data lies, if not where it lay. One multi-head checkpoint is enough
    for that.
    """
    require_new(out)
    at_least("draws", draws, 1)
    if len(folders) < (1 if learn_weights else 2):
        raise ConfigError("two or more checkpoints", f"{len(folders)}", "name the members of the ensemble")
    members = [open_checkpoint(folder) for folder in folders]
    model, config = checkpoint.join(members)
    facts: dict[str, Any] = {
        "members": [{"weights": one.weights_hash, "heads": len(one.model.heads)} for one in members]
    }
    model.weigh(None)
    if learn_weights:
        if len(model.heads) == 1:
            raise ConfigError("two heads or more to weigh", "1", "name several checkpoints")
        data = replace(config.data, root=root or config.data.root)
        model.to(device).weigh(_learned(model, data, config.train.sigma, draws, torch.device(device)))
    checkpoint.save(out, model, config, members[0].info, **facts)
    return out


def _learned(model: MultiHead, data: DataConfig, sigma: float, draws: int, device: torch.device) -> Tensor:
    splits = load(data)
    images = splits.validation if len(splits.validation) else splits.train
    images = select(images, SubsetConfig(every=-(-len(images) // IMAGES)))
    return fit_weights(*noisy_logits(model, images, sigma=sigma, draws=draws, seed=0, device=device))


@torch.no_grad()
def noisy_logits(
    model: MultiHead,
    dataset: Dataset,
    *,
    sigma: float,
    draws: int,
    seed: int,
    device: torch.device,
    batch: int = 64,
) -> tuple[Tensor, Tensor]:
    """Logits [L, N, C] of `draws` noisy copies of every image, and the copies' labels [N]."""
    generator = seeding.generator(seed, "ensemble-weights", device=device)
    logits, labels = [], []
    with borrowed_mode(model, training=False):
        for images, target_N, _ in plain_batches(dataset, batch):
            copies = noisy_copies(images.to(device), sigma, draws, generator)
            logits.append(model(copies).float().cpu())
            labels.append(target_N.repeat(draws))
    return torch.cat(logits, dim=1), torch.cat(labels)
