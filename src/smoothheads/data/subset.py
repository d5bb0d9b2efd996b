"""Parts of a split. A part remembers where its images stood in the original, and its fingerprint differs."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from smoothheads.data import SubsetConfig
from smoothheads.data.arrays import ArrayDataset
from smoothheads.data.base import DataInfo, Dataset
from smoothheads.errors import DataError
from smoothheads.seeding import derive
from smoothheads.types import Pixels


@dataclass(frozen=True, eq=False)
class View:
    """Some positions of a data set that is not held in memory."""

    base: Dataset
    positions: NDArray[np.int64]

    @property
    def info(self) -> DataInfo:
        return self.base.info

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        return self.base.labels[self.positions]

    @cached_property
    def indices(self) -> NDArray[np.int64]:
        return self.base.indices[self.positions]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the whole set's fingerprint and the positions."""
        digest = hashlib.sha256(f"view {self.base.fingerprint}".encode())
        digest.update(self.positions.astype("<i8").tobytes())
        return digest.hexdigest()

    def image(self, position: int) -> Pixels:
        return self.base.image(int(self.positions[position]))

    def __len__(self) -> int:
        return len(self.positions)


def select(dataset: Dataset, subset: SubsetConfig) -> Dataset:
    """The images that `subset` names, in its order: positions are those in `dataset`."""
    positions = np.arange(len(dataset), dtype=np.int64)
    if subset.indices is not None:
        positions = _explicit(subset.indices, dataset)
    positions = positions[subset.offset :: subset.every][: subset.first]
    if not positions.size:
        got = f"offset {subset.offset}" if subset.offset else "an empty data set"
        raise DataError(f"images left of {dataset.info.name} ({len(dataset)} images)", got, "lower offset")
    return dataset if np.array_equal(positions, np.arange(len(dataset))) else take(dataset, positions)


def take(dataset: Dataset, positions: NDArray[np.int64]) -> Dataset:
    if isinstance(dataset, ArrayDataset):
        return dataset.take(positions)
    if isinstance(dataset, View):
        return View(dataset.base, dataset.positions[positions])
    return View(dataset, positions)


def hold_out(dataset: Dataset, share: float) -> tuple[Dataset, Dataset]:
    """The images to train on, and a share cut off for validation: the same whatever the training seed.

    A share above 0 holds out at least one image. Both parts keep the order of the whole.
    """
    count = len(dataset)
    held = max(1, round(share * count)) if share > 0 else 0
    if held >= count:
        raise DataError("images left to train on", f"{held} of {count} held out", "lower data.validation")
    order = fixed_permutation(count, "validation")
    return take(dataset, np.sort(order[held:])), take(dataset, np.sort(order[:held]))


def fixed_permutation(count: int, purpose: str) -> NDArray[np.int64]:
    """A shuffle of 0..count-1 that never changes: numpy froze the stream of RandomState for good."""
    state = np.random.RandomState(derive(0, purpose) % 2**32)
    return state.permutation(count).astype(np.int64)


def _explicit(indices: tuple[int, ...], dataset: Dataset) -> NDArray[np.int64]:
    where = f"{dataset.info.name} ({len(dataset)} images)"
    if not indices:
        raise DataError(f"at least one index of {where}", "none", "leave indices out to use all images")
    outside = [index for index in indices if not 0 <= index < len(dataset)]
    if outside:
        raise DataError(f"indices 0..{len(dataset) - 1} of {where}", str(outside[0]), "drop that index")
    if len(set(indices)) < len(indices):
        twice = next(index for index in indices if indices.count(index) > 1)
        raise DataError(f"each index of {where} once", f"{twice} more than once", "drop the repetition")
    return np.array(indices, dtype=np.int64)
