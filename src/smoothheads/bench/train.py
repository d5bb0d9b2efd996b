"""smoothheads bench train: a step of SOME against the same step written plainly in float32."""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from functools import partial
from typing import Final

import numpy as np

from smoothheads import device as devices
from smoothheads.bench import machine, networks
from smoothheads.bench.networks import Bench
from smoothheads.bench.outcome import BenchOutcome, compared
from smoothheads.bench.plain import SomeStep
from smoothheads.bench.roofline import best_seconds, operators
from smoothheads.bench.timing import Job, OnRound, Turns, interleaved
from smoothheads.data import plain_batches
from smoothheads.models.cost import cost
from smoothheads.objectives import Gaussian, ObjectiveConfig, TeachingConfig
from smoothheads.report.table import number
from smoothheads.training import TrainConfig, Trainer
from smoothheads.training.loop import StepDone

PLAIN: Final = "plain step"
OURS: Final = "smoothheads"
LAYOUTS: Final = {OURS: True, "smoothheads, channels first": False}  # by whether channels come last
LAMBDA: Final = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainSettings(Turns):
    network: str = "resnet20"
    """resnet110 and resnet20 (32x32), resnet8 (16x16), lenet (28x28), digits (resnet8 at 8x8)."""
    heads: int = 5
    draws: int = 2
    """Draws of each image (m)."""
    images: int = 128
    """Images per step."""
    sigma: float = 0.5
    profile: bool = False
    """Say where the time of our step goes."""


def run(settings: TrainSettings, on_round: OnRound | None = None) -> BenchOutcome:
    size = networks.named(settings.network)
    bench = networks.make(size, settings.heads, images=4 * settings.images)
    before = machine.describe(settings.threads)
    jobs: dict[str, Job] = {PLAIN: _plain(settings, bench)}
    trainers = {name: _trainer(settings, bench, channels_last=last) for name, last in LAYOUTS.items()}
    jobs |= {name: training_job(trainer, settings.images) for name, trainer in trainers.items()}
    rates = interleaved(jobs, settings.rounds, on_round=on_round)
    # Forwards, and twice that backwards.
    operations = 3 * settings.draws * cost(bench.model, size.shape).flops
    speeds = {name: float(np.median(each)) for name, each in rates.items()}
    reached = {name: {"Gop/s": number(speed * operations, ".0f", 1e-9)} for name, speed in speeds.items()}
    step = settings.images / speeds[OURS]
    precision = trainers[OURS].config.precision
    busiest = [operators(partial(jobs[OURS], 0))] if settings.profile else []
    return compared(
        f"train-{settings.network}-{settings.heads}",
        f"Training SOME, {settings.heads}-head {settings.network}, m = {settings.draws}, "
        f"{settings.images} images a step, {precision}",
        unit="images/s",
        baselines=(PLAIN,),
        rates=rates,
        machine=before,
        settings=asdict(settings),
        facts=reached,
        notes=(_loading(trainers[OURS], step), *busiest),
    )


def _plain(settings: TrainSettings, bench: Bench) -> Job:
    step = SomeStep(
        copy.deepcopy(bench.model), sigma=settings.sigma, draws=settings.draws, lam=LAMBDA, lr=1e-3
    )
    batch = next(plain_batches(bench.images, settings.images))

    def job(_: int) -> int:
        with devices.threads(settings.threads):
            step(batch.images, batch.labels)
        return settings.images

    return job


def _trainer(settings: TrainSettings, bench: Bench, *, channels_last: bool) -> Trainer:
    config = TrainConfig(
        sigma=settings.sigma,
        epochs=10_000,  # never reached
        batch=settings.images,
        batch_unit="images",
        lr=1e-3,
        channels_last=channels_last,
        threads=settings.threads,
    )
    objective = ObjectiveConfig(
        method=Gaussian(draws=settings.draws), teaching=TeachingConfig(pace="fixed", lambda_last=LAMBDA)
    )
    model = copy.deepcopy(bench.model)
    return Trainer(model, bench.images, config=config, objective=objective, augment=True)


def training_job(trainer: Trainer, images: int) -> Job:
    """A step a turn: loading, augmentation and step together, as in a run."""
    steps = (event for event in trainer.run() if isinstance(event, StepDone))

    def job(_: int) -> int:
        with devices.threads(trainer.config.threads):
            next(steps)
        return images

    return job


def _loading(trainer: Trainer, step: float) -> str:
    """What a batch costs, and what it costs to take one in the middle of an epoch, as a resumed run does."""
    loader = trainer.loader
    middle = loader.steps_per_epoch // 2
    plain = best_seconds(lambda: next(loader.epoch(1)))
    resumed = best_seconds(lambda: next(loader.epoch(1, start_step=middle)))
    return (
        f"A batch is loaded and augmented in {plain * 1e3:.1f} ms, the first one after a resume in "
        f"{resumed * 1e3:.1f} ms: {plain / step:.1%} and {resumed / step:.1%} of a step."
    )
