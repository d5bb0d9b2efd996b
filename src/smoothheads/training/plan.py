"""What a run will cost, told before it starts."""

from __future__ import annotations

import copy
import time
from dataclasses import dataclass, replace

import torch

from smoothheads import seeding
from smoothheads.data.loader import Batch
from smoothheads.device import autocast
from smoothheads.models.cost import Cost, cost
from smoothheads.training.loop import Trainer


@dataclass(frozen=True, slots=True)
class Plan:
    model: Cost
    images_per_step: int
    steps_per_epoch: int
    steps: int
    done: int
    """Steps of an earlier run that goes on."""
    image: tuple[int, int, int]
    seconds: float
    """Estimated from a short trial on this machine."""


def make_plan(trainer: Trainer, patience: float = 2.0) -> Plan:
    """Times a few steps on copies of the model and the objective, so that nothing is disturbed.

    Small steps first; a whole one, which is truer, when it can be afforded within `patience` seconds.
    """
    info = trainer.loader.dataset.info
    images_per_step = min(trainer.loader.images_per_step, len(trainer.loader.dataset))
    shards = trainer.loader.shards
    micro_batch = images_per_step // shards.count
    count = min(8, micro_batch)
    seconds = _seconds_per_step(trainer, count) / count * micro_batch
    if 3 * seconds < patience:
        seconds = _seconds_per_step(trainer, micro_batch)
    return Plan(
        model=cost(trainer.model, info.shape),
        images_per_step=images_per_step,
        steps_per_epoch=trainer.loader.steps_per_epoch,
        steps=trainer.steps,
        done=trainer.step,
        image=info.shape,
        seconds=len(shards.own) * seconds * (trainer.steps - trainer.step),
    )


def _seconds_per_step(trainer: Trainer, images: int) -> float:
    info = trainer.loader.dataset.info
    model, objective = copy.deepcopy(trainer.model).train(), copy.deepcopy(trainer.objective)
    generator = seeding.generator(0, "trial", device=trainer.device)
    count = max(2, images)
    pixels = torch.rand(count, *info.shape, generator=generator, device=trainer.device)
    batch = Batch(pixels, torch.arange(count) % info.classes, torch.zeros(count, dtype=torch.long))
    step = replace(trainer.as_step(batch, generator), model=model, epoch=trainer.config.epochs)
    times = []
    for _ in range(3):
        started = time.perf_counter()
        with autocast(trainer.device, trainer.config.precision):
            loss = objective(step).loss
        loss.backward()  # type: ignore[no-untyped-call]
        times.append(time.perf_counter() - started)
    return min(times)
