"""Soft labels for the methods that need them: the votes of an earlier network, computed once per run."""

from __future__ import annotations

from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from smoothheads.config import CatRs, Method
from smoothheads.data import Dataset
from smoothheads.errors import ConfigError
from smoothheads.files import write_atomic
from smoothheads.objectives.soft_labels import class_frequencies
from smoothheads.runs.layout import open_checkpoint

FILE = "soft-labels.safetensors"


def soft_labels(method: Method, dataset: Dataset, out: Path, device: torch.device) -> Tensor | None:
    """[training images, C] for CAT-RS, from the file in `out` if an earlier start has made it; else none."""
    if not isinstance(method, CatRs):
        return None
    if method.teacher is None:
        raise ConfigError(
            "a teacher for cat-rs",
            "none",
            "set --objective.method.teacher to a Gaussian model's checkpoint",
        )
    path = out / FILE
    if not path.exists():
        teacher = open_checkpoint(Path(method.teacher)).model.to(device)
        found = class_frequencies(
            teacher, dataset, sigma=method.teacher_sigma, draws=method.teacher_draws, seed=0, device=device
        )
        write_atomic(path, safetensors.torch.save({"soft_labels": found}))
    return safetensors.torch.load_file(path)["soft_labels"]
