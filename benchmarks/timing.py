"""Times contenders in turns on one machine, with networks of fresh weights: speed does not depend on what
was learnt."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final, TypeVar

import numpy as np
import torch

from smoothheads import device as devices
from smoothheads.data import ArrayDataset, from_arrays
from smoothheads.models import ModelConfig, build
from smoothheads.models.multihead import MultiHead
from smoothheads.provenance import processor, versions
from smoothheads.results.metrics import Floats, MedianInterval, interval_of_median
from smoothheads.training.loop import StepDone, Trainer

K = TypeVar("K")
Job = Callable[[int], int]
"""Does the work of one turn, the same in every turn, and returns how much it was."""
CLASSES: Final = 10
BATCH: Final = 128
"""Samples per forward pass of the plain loop."""


def interleaved(
    jobs: Mapping[K, Job],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[K, Floats]:
    """Returns the work per second of every job in every round.

    The jobs take turns, so that a busy moment of the machine hits all alike; their order rotates from round
    to round. An extra first round only warms up and is not kept.

    Args:
        jobs: The contenders by name.
        rounds: Number of rounds that count.
        clock: Gives seconds: of the wall, or of the processor.
    """
    names = list(jobs)
    # Round 0 warms up: caches, threads, compiled kernels.
    rates: dict[K, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            started = clock()
            work = jobs[name](turn)
            rates[name].append(work / (clock() - started))
    return {name: np.array(each[1:]) for name, each in rates.items()}


def ratio(rates: Floats, baseline: Floats) -> MedianInterval:
    """Returns how many times faster `rates` are than `baseline`, compared round by round."""
    return interval_of_median(rates / baseline)


def training_job(trainer: Trainer, images: int) -> Job:
    """Returns a job that takes a whole training step: loading, augmentation, losses, backward, update."""
    steps = (event for event in trainer.run() if isinstance(event, StepDone))

    def job(_: int) -> int:
        with devices.threads(trainer.config.threads):
            next(steps)
        return images

    return job


def build_network(config: ModelConfig, shape: tuple[int, int, int]) -> MultiHead:
    """Builds a network with fresh weights for images of `shape`."""
    half = (0.5,) * shape[0]
    return build(config, shape=shape, classes=CLASSES, mean=half, std=half, seed=0)


def random_images(shape: tuple[int, int, int], count: int) -> ArrayDataset:
    """Returns a data set of random pixels, on which speed is measured."""
    pixels = np.random.default_rng(0).integers(0, 256, (count, *shape), dtype=np.uint8)
    return from_arrays(pixels, np.arange(count) % CLASSES, classes=CLASSES, name="random")


def describe_machine(threads: int) -> dict[str, Any]:
    """Returns hardware, versions and date, which every measured result carries."""
    packages = dict(versions())
    for name in ("openvino", "nncf", "adversarial-robustness-toolbox"):
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "native_bfloat16": devices.computes_bfloat16(torch.device("cpu")),
        "threads": threads,
        "load": os.getloadavg()[0],
        "versions": packages,
    }
