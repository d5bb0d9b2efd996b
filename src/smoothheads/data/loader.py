"""Batches for training and evaluation, with random crops and flips.

What a batch holds depends on seed, epoch and step alone, for any number of workers and any first step.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray
from torch import Tensor

from smoothheads.config.check import at_least
from smoothheads.data.arrays import ArrayDataset, check_labels
from smoothheads.data.base import Dataset
from smoothheads.data.folder import FolderDataset
from smoothheads.errors import DataError
from smoothheads.seeding import generator

Positions = NDArray[np.int64]
SCALE = (0.08, 1.0)  # fraction of the area that a random part of a picture has
RATIO = (3 / 4, 4 / 3)  # its width divided by its height
ATTEMPTS = 10


class Batch(NamedTuple):
    images: Tensor
    """float32 [N, C, H, W] on the processor, m / q in [0, 1]."""
    labels: Tensor
    """int64 [N]."""
    positions: Tensor
    """int64 [N]: positions of the images in the data set."""


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
        """Returns where the own micro-batches of a step of `images` begin, and where the last one ends."""
        # The first `larger` micro-batches have one image more than the others.
        small, larger = divmod(images, self.count)
        return [k * small + min(k, larger) for k in range(self.first, self.last + 1)]

    def place(self, images: int) -> slice:
        """Returns where the own images are in a step of `images`."""
        first, *_, last = self.bounds(images)
        return slice(first, last)


ALL: Final = Shards()


@dataclass(frozen=True)
class Loader:
    """Training batches: every image once an epoch, in ceil(N / images_per_step) batches of near-equal size.

    Small sets are cropped and flipped in whole batches. Folders are streamed, with a random part of each
    image.
    """

    dataset: Dataset
    images_per_step: int
    seed: int
    augment: bool
    workers: int = 0
    """Threads that read the pictures of a folder ahead; Pillow decodes without holding Python's lock."""
    shards: Shards = ALL
    """Only the images of the own micro-batches are read; they are the same bits as in the full batch."""

    def __post_init__(self) -> None:
        at_least("images_per_step", self.images_per_step, 1)
        at_least("workers", self.workers, 0)
        if not len(self.dataset):
            raise DataError("There are no images to train on; check data.subset and data.validation.")
        # Somebody else's data set may hold labels that nobody has checked yet.
        check_labels(self.dataset.labels, self.dataset.info)

    @property
    def steps_per_epoch(self) -> int:
        """ceil(N / images_per_step)."""
        return -(-len(self.dataset) // self.images_per_step)

    def step_sizes(self) -> list[int]:
        """Returns the number of images of each step of an epoch, over all processes."""
        small, larger = divmod(len(self.dataset), self.steps_per_epoch)
        return [small + (step < larger) for step in range(self.steps_per_epoch)]

    def epoch(self, epoch: int, start_step: int = 0, order: Tensor | None = None) -> Iterator[Batch]:
        """Yields the epoch's batches from `start_step` on; `order` replaces the keyed permutation."""
        # A permutation of its own for every epoch, so that an epoch can be repeated without those before it.
        if order is None:
            order = torch.randperm(len(self.dataset), generator=generator(self.seed, "order", epoch))
        # Near-equal parts: no image is dropped, and no batch is much smaller than the others.
        parts = np.array_split(order.numpy(), self.steps_per_epoch)

        def read(step: int) -> Batch:
            key = (self.seed, epoch, step) if self.augment else None
            return _batch(self.dataset, parts[step], self.shards, key)

        steps = range(start_step, self.steps_per_epoch)
        if self.workers and isinstance(self.dataset, FolderDataset):
            yield from _ahead(read, steps, self.workers)
        else:
            yield from map(read, steps)


def plain_batches(dataset: Dataset, size: int, *, first: int = 0, every: int = 1) -> Iterator[Batch]:
    """Yields all images in order and without augmentation; the last batch may be smaller.

    Args:
        size: images per batch.
        first: the first batch of this process, from 0.
        every: the number of processes that share the batches.
    """
    at_least("size", size, 1)
    for start in range(first * size, len(dataset), every * size):
        yield _batch(dataset, np.arange(start, min(start + size, len(dataset))), ALL, None)


def _batch(dataset: Dataset, positions: Positions, shards: Shards, key: tuple[int, int, int] | None) -> Batch:
    """Returns the images of this process in one step; `key` is (seed, epoch, step) if they are augmented."""
    # Only the images of this process are read.
    place = shards.place(len(positions))
    own = positions[place]
    if key is not None and isinstance(dataset, FolderDataset):
        # Each image of a folder has a random stream of its own, so that the batch does not matter.
        seed, epoch, _ = key
        streams = [(int(position), generator(seed, "augment", epoch, int(position))) for position in own]
        images = np.stack([dataset.augmented(position, stream) for position, stream in streams])
        key = None
    elif isinstance(dataset, ArrayDataset):
        images = dataset.images[own]
    else:
        images = np.stack([dataset.image(int(position)) for position in own])
    if key is not None:
        # One stream for the full batch, of which every process takes its part.
        seed, epoch, step = key
        stream = generator(seed, "augment", epoch, step)
        images = crop_flip(images, stream, part=(len(positions), place))
    # m / q in float32.
    pixels = torch.from_numpy(images).to(torch.float32).div_(dataset.info.grid.max_value)
    return Batch(pixels, torch.from_numpy(dataset.labels[own]), torch.from_numpy(own))


def _ahead(read: Callable[[int], Batch], steps: Iterable[int], threads: int) -> Iterator[Batch]:
    """Yields the batches of the steps in their order, read by threads that are two steps ahead each."""
    waiting: deque[Future[Batch]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        for step in steps:
            waiting.append(pool.submit(read, step))
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def crop_flip(
    images: NDArray[np.uint8], generator: torch.Generator, *, part: tuple[int, slice] | None = None
) -> NDArray[np.uint8]:
    """Pads images with zeros by an eighth of the side, crops each at random, and mirrors half of them.

    Args:
        images: grid integers [N, C, H, W].
        generator: the stream that decides.
        part: (batch, place) if the images are those at `place` of a batch of that size; they come out as they
            would in the full batch.
    """
    count, channels, height, width = images.shape
    batch, place = part or (count, slice(None))
    # Pad by an eighth of each side.
    pad_y, pad_x = height // 8, width // 8
    padded = np.zeros((count, channels, height + 2 * pad_y, width + 2 * pad_x), np.uint8)
    padded[:, :, pad_y : pad_y + height, pad_x : pad_x + width] = images
    # Draw for the full batch, so that a part of it sees the same numbers.
    top = torch.randint(2 * pad_y + 1, (batch,), generator=generator).numpy()[place]
    left = torch.randint(2 * pad_x + 1, (batch,), generator=generator).numpy()[place]
    mirrored = torch.randint(2, (batch,), generator=generator).numpy().astype(bool)[place]
    # Crop, then mirror half.
    windows = sliding_window_view(padded, (height, width), axis=(2, 3))
    cropped: NDArray[np.uint8] = windows[np.arange(count), :, top, left]
    cropped[mirrored] = cropped[mirrored, :, :, ::-1]
    return cropped


def random_resized_box(width: int, height: int, generator: torch.Generator) -> tuple[int, int, int, int]:
    """Returns left, top, right and bottom of a random part of a picture.

    It has 8 % to 100 % of the area and an aspect ratio of 3/4 to 4/3. If ten draws do not fit into the
    picture, it is the central part with the nearest allowed ratio.
    """
    draws = torch.rand((ATTEMPTS, 2), generator=generator, dtype=torch.float64).tolist()
    for scale, aspect in draws:
        # The area is uniform in its range, the aspect ratio uniform in its logarithm.
        area = (SCALE[0] + scale * (SCALE[1] - SCALE[0])) * width * height
        ratio = math.exp(math.log(RATIO[0]) + aspect * (math.log(RATIO[1]) - math.log(RATIO[0])))
        wide, high = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < wide <= width and 0 < high <= height:
            left = int(torch.randint(width - wide + 1, (), generator=generator))
            top = int(torch.randint(height - high + 1, (), generator=generator))
            return left, top, left + wide, top + high
    # Ten draws did not fit: the central part with the nearest allowed ratio.
    wide, high = min(width, round(height * RATIO[1])), min(height, round(width / RATIO[0]))
    left, top = (width - wide) // 2, (height - high) // 2
    return left, top, left + wide, top + high
