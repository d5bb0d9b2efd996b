"""Somebody's own images, which only they can read again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NoReturn

from smoothheads.data.base import Split
from smoothheads.data.config import DataConfig
from smoothheads.errors import DataError


@dataclass(frozen=True, kw_only=True)
class Own(DataConfig):
    """Stands in a checkpoint for images that were passed in Python; its other facts are in the checkpoint."""

    name: ClassVar[str] = "own"

    def read(self, split: Split) -> NoReturn:
        raise DataError(
            f"a {split} split that can be read again",
            "images of somebody's own, passed in Python",
            "pass them in Python again, or name a data set (--data.name)",
        )
