"""What a method wants to know about the training images, computed once per run and kept in its folder."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from smoothheads import ranks
from smoothheads.data import Dataset
from smoothheads.files import write_atomic
from smoothheads.objectives.method import Method, Preparation
from smoothheads.runs.layout import PREPARED, open_checkpoint


def prepare(
    method: Method,
    dataset: Dataset,
    out: Path,
    device: torch.device,
    on_progress: Callable[[int, int], None] | None = None,
) -> Tensor | None:
    """From the file in `out` if an earlier start has made it, else by the method; it writes nothing."""
    path = out / PREPARED
    if path.exists():
        return safetensors.torch.load_file(path)["prepared"]
    return method.prepare(
        Preparation(
            dataset=dataset,
            device=device,
            open_model=lambda folder: open_checkpoint(Path(folder)).model,
            on_progress=on_progress or _ignore,
        )
    )


def _ignore(done: int, total: int) -> None:
    del done, total


def keep(prepared: Tensor | None, out: Path) -> None:
    """For the next start."""
    if prepared is not None and ranks.first() and not (out / PREPARED).exists():
        write_atomic(out / PREPARED, safetensors.torch.save({"prepared": prepared.contiguous()}))
