"""A data set: stripes, across or down, on a noisy ground."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from smoothheads.data import ArrayDataset, DataConfig, Split, from_arrays


@dataclass(frozen=True, kw_only=True)
class Stripes(DataConfig):
    """Grey images of 8x8 in two classes, made on the spot."""

    name: ClassVar[str] = "stripes"

    contrast: int = 120
    """Between the stripes and the ground, of 255."""

    def read(self, split: Split) -> ArrayDataset:
        rng = np.random.default_rng(["train", "test"].index(split))  # the same images every time
        labels = rng.integers(0, 2, 400 if split == "train" else 100)
        down = np.broadcast_to(np.arange(8) % 2, (8, 8))
        stripes = np.stack([down.T, down])[labels]
        images = rng.integers(60, 120, stripes.shape) + self.contrast * stripes
        return from_arrays(images.astype(np.uint8)[:, None], labels, classes=("across", "down"))
