"""Metrics for TensorBoard, when asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoothheads.config import leaves
from smoothheads.errors import MissingExtraError
from smoothheads.training import EpochDone


class Writer:
    """Writes nothing unless enabled; the package is imported only then."""

    def __init__(self, folder: Path, *, enabled: bool) -> None:
        self._writer: Any = None
        if enabled:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise MissingExtraError("tensorboard", "tensorboard") from None
            self._writer = SummaryWriter(folder / "tensorboard")

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, event: EpochDone) -> None:
        if self._writer is None:
            return
        for key, value in leaves(event.metrics):
            name = key.replace(".", "/")
            if isinstance(value, list):
                for k, of_head in enumerate(value, start=1):
                    self._writer.add_scalar(f"{name}/head-{k}", of_head, event.epoch)
            else:
                self._writer.add_scalar(name, value, event.epoch)
