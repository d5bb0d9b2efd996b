"""Metrics for TensorBoard, when asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
        for name, value in _flat(event.metrics):
            self._writer.add_scalar(name, value, event.epoch)


def _flat(metrics: dict[str, Any], prefix: str = "") -> list[tuple[str, float]]:
    found: list[tuple[str, float]] = []
    for name, value in metrics.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name}/")
        elif isinstance(value, list):
            found += [(f"{prefix}{name}/head-{k + 1}", float(v)) for k, v in enumerate(value)]
        else:
            found.append((f"{prefix}{name}", float(value)))
    return found
