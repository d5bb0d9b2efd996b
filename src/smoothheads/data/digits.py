"""The handwritten digits that come with scikit-learn: 1,797 images of 8x8, 17 grey levels (q = 16)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from smoothheads.data.base import DataInfo, Split
from smoothheads.data.config import DATASETS, DataConfig
from smoothheads.types import Grid

if TYPE_CHECKING:
    from smoothheads.data.arrays import ArrayDataset

TRAIN_SIZE = 1437

INFO = DataInfo(
    name="digits",
    grid=Grid(16),
    shape=(1, 8, 8),
    class_names=tuple("0123456789"),
    mean=(0.3051,),
    std=(0.3758,),
)


@DATASETS.register
@dataclass(frozen=True, kw_only=True)
class Digits(DataConfig):
    """scikit-learn's order follows the writers, so it is shuffled once and for all: the first 1,437 of the
    fixed permutation are the training split, the other 360 the test split. Mean and deviation are those of
    the training split."""

    name: ClassVar[str] = "digits"
    known: ClassVar[DataInfo | None] = INFO

    def read(self, split: Split) -> ArrayDataset:
        import numpy as np
        from sklearn.datasets import load_digits

        from smoothheads.data.arrays import ArrayDataset
        from smoothheads.data.subset import fixed_permutation

        images, labels = load_digits(return_X_y=True)
        order = fixed_permutation(len(labels), "digits")
        chosen = order[:TRAIN_SIZE] if split == "train" else order[TRAIN_SIZE:]
        pixels = images.reshape(-1, 1, 8, 8).astype(np.uint8)
        return ArrayDataset(pixels[chosen], labels[chosen].astype(np.int64), INFO)
