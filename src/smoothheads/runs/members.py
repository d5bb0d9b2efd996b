"""An ensemble as the field means it: networks trained apart from as many seeds, then joined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from smoothheads import ranks
from smoothheads.errors import ConfigError
from smoothheads.files import claim
from smoothheads.runs.ensemble import ensemble_run
from smoothheads.runs.layout import CHECKPOINT
from smoothheads.runs.train import train_run
from smoothheads.training.config import RunConfig


def train_members(
    config: RunConfig,
    out: Path | str,
    count: int,
    *,
    on_member: Callable[[int], None] | None = None,
    resume: bool = False,
    **settings: Any,
) -> Path:
    """Trains `count` networks with the seeds from the configuration's on, each in a folder of its own in
    `out`, and joins them in OUT/checkpoint; `settings` are those of `train_run`."""
    out = Path(out)
    if count < 2:
        raise ConfigError("two members or more", str(count), "train one network without members")
    with ranks.joined(config.train.device):
        if ranks.first():
            claim(out, lambda folder: member_folder(folder, 1).is_dir())
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
    return out / f"member-{number}"
