"""Ensembles: networks trained apart from as many seeds, then joined in one checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from smoothheads import checkpoint, ranks, seeding
from smoothheads.checkpoint.join import join
from smoothheads.config.check import at_least
from smoothheads.data import SubsetConfig, load, select
from smoothheads.errors import ConfigError
from smoothheads.files import reserve
from smoothheads.models import fit_weights
from smoothheads.runs.models import CHECKPOINT, open_checkpoint
from smoothheads.runs.train import train_run
from smoothheads.training.config import RunConfig
from smoothheads.training.metrics import noisy_logits

BATCH = 64
IMAGES = 5000  # a handful of weights needs no more


def ensemble_run(
    folders: Sequence[Path | str],
    out: Path | str,
    *,
    learn_weights: bool = False,
    root: str | None = None,
    draws: int = 10,
    on_training: bool = False,
    device: torch.device | str = "cpu",
) -> Path:
    """Writes the joined checkpoint to `out`; its manifest names the members by the hashes of their weights.

    Args:
        folders: the members' checkpoints or run folders; one multi-head checkpoint can have weights learned.
        out: folder of the joined checkpoint.
        learn_weights: learn a weight per head on the validation images that training held out, under noise.
        root: where the data lies, if not where it lay in training.
        draws: noise draws per image that the weights are learned on.
        on_training: learn on training images instead, which the networks know; the manifest says so.
        device: where logits are computed.
    """
    out = Path(out)
    reserve(out)
    at_least("draws", draws, 1)
    if len(folders) < (1 if learn_weights else 2):
        raise ConfigError(f"An ensemble has two members or more, not {len(folders)}: name their checkpoints.")
    # 1. The heads of all members become the heads of one network.
    members = [open_checkpoint(folder) for folder in folders]
    model, config = join(members)
    facts: dict[str, Any] = {
        "members": [{"weights": one.weights_hash, "heads": len(one.model.heads)} for one in members]
    }
    if all("seconds" in one.manifest for one in members):
        facts["seconds"] = sum(one.manifest["seconds"] for one in members)
    # 2. If asked for, a weight per head, from logits under noise of images that training has not seen.
    model.weigh(None)
    if learn_weights:
        if len(model.heads) == 1:
            raise ConfigError("One head has nothing to weigh: name several checkpoints.")
        splits = load(replace(config.data, root=root or config.data.root))
        images = splits.train if on_training else splits.validation
        if not len(images):
            raise ConfigError(
                "Training held out no validation images to learn weights on: add --on-training to take "
                "training images, which the networks know."
            )
        images = select(images, SubsetConfig(every=-(-len(images) // IMAGES)))
        facts["weights_learned_on"] = "training" if on_training else "validation"
        # [L, images x draws, C] under noise of the sigma that the networks were trained with.
        device = torch.device(device)
        generator = seeding.generator(0, "ensemble-weights", device=device)
        pairs = noisy_logits(
            model.to(device), images, generator, sigma=config.train.sigma, draws=draws, batch=BATCH
        )
        logits, labels = zip(*((logits.cpu(), labels.cpu()) for logits, labels in pairs), strict=True)
        model.weigh(fit_weights(torch.cat(logits, 1), torch.cat(labels)))
    checkpoint.save(out, model, config, members[0].info, **facts)
    return out


def train_members(
    config: RunConfig,
    out: Path | str,
    count: int,
    *,
    on_member: Callable[[int], None] | None = None,
    resume: bool = False,
    **settings: Any,
) -> Path:
    """Trains networks from as many seeds, each in a folder of its own, and joins them in OUT/checkpoint.

    Args:
        config: the configuration; its seed is that of the first member, the others follow.
        out: folder of the run, with member-1, member-2, ...
        count: number of members K.
        on_member: receives the number of the member that begins.
        resume: continue members that were interrupted.
        settings: further arguments of `train_run`.
    """
    out = Path(out)
    if count < 2:
        raise ConfigError(f"An ensemble has two members or more, not {count}: leave members out.")
    with ranks.joined(config.train.device):
        if ranks.first():
            reserve(out, lambda folder: member_folder(folder, 1).is_dir())
        # Each member is a run of its own, which can be resumed; only the seed differs.
        folders = [member_folder(out, k) for k in range(1, count + 1)]
        for k, folder in enumerate(folders):
            if on_member:
                on_member(k + 1)
            member = replace(config, train=replace(config.train, seed=config.train.seed + k))
            train_run(member, folder, resume=resume, **settings)
        if ranks.first() and not (out / CHECKPOINT).is_dir():
            ensemble_run(folders, out / CHECKPOINT)
    return out / CHECKPOINT


def member_folder(out: Path, number: int) -> Path:
    """Returns the folder of member `number`, counted from 1."""
    return out / f"member-{number}"
