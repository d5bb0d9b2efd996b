"""Batches for training and evaluation. What a batch holds depends on seed, epoch and step alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader

from smoothheads.config.check import at_least
from smoothheads.data.arrays import ArrayDataset
from smoothheads.data.augment import crop_flip
from smoothheads.data.base import Dataset
from smoothheads.data.check import labels_within
from smoothheads.data.folder import FolderDataset
from smoothheads.data.subset import View
from smoothheads.errors import DataError
from smoothheads.seeding import derive, generator

Positions = NDArray[np.int64]


class Batch(NamedTuple):
    images: Tensor
    """float32 [N, C, H, W] on the processor, m / q in [0, 1]."""
    labels: Tensor
    """int64 [N]."""
    positions: Tensor
    """int64 [N]: where the images stand in the data set."""


@dataclass(frozen=True)
class Shards:
    """A step's images in `count` micro-batches of near-equal size, of which this process has those from
    `first` to before `last`."""

    count: int = 1
    first: int = 0
    last: int = 1

    @property
    def own(self) -> range:
        return range(self.first, self.last)

    def bounds(self, images: int) -> list[int]:
        """Where the own micro-batches of so many images begin, and where the last of them ends."""
        small, larger = divmod(images, self.count)
        return [k * small + min(k, larger) for k in range(self.first, self.last + 1)]


WHOLE: Final = Shards()


@dataclass(frozen=True)
class Loader:
    """Training batches: every image once an epoch, in ceil(N / images_per_step) batches of near-equal size.

    Small sets are cropped and flipped in whole batches; folders are streamed, by `workers` processes if any,
    with a random part of each image. The same bits come out for any number of workers and any first step.
    """

    dataset: Dataset
    images_per_step: int
    seed: int
    augment: bool
    workers: int = 0
    shards: Shards = WHOLE
    """Only the images of its own micro-batches are read; they are the same bits as in the whole batch."""

    def __post_init__(self) -> None:
        at_least("images_per_step", self.images_per_step, 1)
        at_least("workers", self.workers, 0)
        if not len(self.dataset):
            raise DataError(
                "at least one training image", "none", "check the subset and the validation share"
            )
        labels_within(self.dataset.labels, self.dataset.info.classes, self.dataset.info.name)

    @property
    def steps_per_epoch(self) -> int:
        return -(-len(self.dataset) // self.images_per_step)

    def step_sizes(self) -> list[int]:
        """How many images each step of an epoch has, over all processes."""
        small, larger = divmod(len(self.dataset), self.steps_per_epoch)
        return [small + (step < larger) for step in range(self.steps_per_epoch)]

    def epoch(self, epoch: int, start_step: int = 0, order: Tensor | None = None) -> Iterator[Batch]:
        """The epoch's batches from `start_step` on; `order` replaces the keyed permutation."""
        if order is None:
            order = torch.randperm(len(self.dataset), generator=generator(self.seed, "order", epoch))
        parts = np.array_split(order.numpy(), self.steps_per_epoch)
        reader = _Reader(self.dataset, (self.seed, epoch) if self.augment else None, self.shards)
        yield from _batches(reader, list(enumerate(parts))[start_step:], self.workers)


def plain_batches(dataset: Dataset, size: int, *, first: int = 0, every: int = 1) -> Iterator[Batch]:
    """All images in order and without augmentation, `size` at a time; the last batch may be smaller.

    Processes that share the batches out take one of `every` so many, from the `first` (from 0) on.
    """
    at_least("size", size, 1)
    starts = range(first * size, len(dataset), every * size)
    parts = [np.arange(start, min(start + size, len(dataset)), dtype=np.int64) for start in starts]
    yield from _batches(_Reader(dataset, None), list(enumerate(parts)), workers=0)


class _Reader(torch.utils.data.Dataset[NDArray[np.uint8] | DataError]):
    """Gives the grid integers [N, C, H, W] of one step; `key` is (seed, epoch) if there is augmentation.

    A DataError is given back, not raised: torch cannot carry it out of a worker process otherwise.
    """

    def __init__(self, dataset: Dataset, key: tuple[int, int] | None, shards: Shards = WHOLE) -> None:
        self.dataset, self.key, self.shards = dataset, key, shards
        self.source = dataset.base if isinstance(dataset, View) else dataset

    def __getitem__(self, item: tuple[int, Positions]) -> NDArray[np.uint8] | DataError:
        try:
            return self.read(*item)
        except DataError as error:
            return error

    def place(self, images: int) -> slice:
        """Where in a step of so many images the own ones are."""
        first, *_, last = self.shards.bounds(images)
        return slice(first, last)

    def read(self, step: int, positions: Positions) -> NDArray[np.uint8]:
        part = len(positions), self.place(len(positions))
        positions = positions[part[1]]
        if self.key is not None and isinstance(self.source, FolderDataset):
            return np.stack([self._augmented(self.source, self.key, int(position)) for position in positions])
        images = gather(self.dataset, positions)
        if self.key is None:
            return images
        seed, epoch = self.key
        return crop_flip(images, generator(seed, "augment", epoch, step), part=part)

    def _augmented(self, source: FolderDataset, key: tuple[int, int], position: int) -> NDArray[np.uint8]:
        seed, epoch = key
        row = int(self.dataset.positions[position]) if isinstance(self.dataset, View) else position
        return source.augmented(row, generator(seed, "augment", epoch, position))


def gather(dataset: Dataset, positions: Positions) -> NDArray[np.uint8]:
    """The images at `positions`, [N, C, H, W]."""
    if isinstance(dataset, ArrayDataset):
        return dataset.images[positions]
    return np.stack([dataset.image(int(position)) for position in positions])


def _batches(reader: _Reader, steps: Sequence[tuple[int, Positions]], workers: int) -> Iterator[Batch]:
    dataset = reader.dataset
    labels = torch.from_numpy(dataset.labels.copy())
    for (_, positions), images in zip(steps, _read_all(reader, steps, workers), strict=True):
        if isinstance(images, DataError):
            raise images
        chosen = torch.from_numpy(positions[reader.place(len(positions))])
        pixels = torch.from_numpy(images).to(torch.float32).div_(dataset.info.grid.max_value)
        yield Batch(pixels, labels[chosen], chosen)


def _read_all(
    reader: _Reader, steps: Sequence[tuple[int, Positions]], workers: int
) -> Iterator[NDArray[np.uint8] | DataError]:
    if isinstance(reader.dataset, ArrayDataset) or not workers:
        return (reader[step] for step in steps)
    # Arrays travel through pipes: tensors would need shared memory, of which containers have little. The
    # generator keeps torch's global one untouched.
    return iter(
        DataLoader(
            reader,
            batch_size=None,
            sampler=steps,
            num_workers=workers,
            collate_fn=_as_is,
            generator=torch.Generator().manual_seed(derive(0, "workers")),
        )
    )


def _as_is(images: Any) -> Any:
    return images
