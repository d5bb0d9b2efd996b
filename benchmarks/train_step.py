"""Time of a training step of SOME against the same step written plainly in float32.

python -m benchmarks.train_step --network resnet20
"""

from __future__ import annotations

import copy
from dataclasses import asdict, dataclass
from typing import Final

import tyro
from benchmarks.contenders import Bench, fresh
from benchmarks.frame import BenchResults, Turns, compared
from benchmarks.plain import SomeStep
from benchmarks.timing import Job, describe_machine, interleaved, training_job

from smoothheads import device as devices
from smoothheads.data.loader import plain_batches
from smoothheads.objectives import Gaussian, ObjectiveConfig, TeachingConfig
from smoothheads.training import TrainConfig
from smoothheads.training.loop import Trainer

PLAIN: Final = "plain step"
LAYOUTS: Final = {"smoothheads": True, "smoothheads, channels first": False}  # whether channels come last
LAMBDA: Final = 1.2


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Turns):
    network: str = "resnet20"
    """resnet110 and resnet20 (32x32), resnet8 (16x16), lenet (28x28), digits (resnet8 at 8x8)."""
    heads: int = 5
    draws: int = 2
    """Noises per image, m."""
    images: int = 128
    """Images per step."""
    sigma: float = 0.5


def run(settings: Settings) -> BenchResults:
    """Measures the plain step and ours, with channels last and first, in turns."""
    bench = fresh(settings.network, settings.heads, images=4 * settings.images)
    machine = describe_machine(settings.threads)
    jobs: dict[str, Job] = {PLAIN: plain_step(settings, bench)}
    for name, channels_last in LAYOUTS.items():
        jobs[name] = training_job(trainer(settings, bench, channels_last=channels_last), settings.images)
    return compared(
        f"train-{settings.network}-{settings.heads}",
        f"Training SOME, {settings.heads}-head {settings.network}, m = {settings.draws}, "
        f"{settings.images} images a step, float32",
        unit="images/s",
        baselines=(PLAIN,),
        rates=interleaved(jobs, settings.rounds),
        machine=machine,
        settings=asdict(settings),
    )


def plain_step(settings: Settings, bench: Bench) -> Job:
    model = copy.deepcopy(bench.model)
    step = SomeStep(model, sigma=settings.sigma, draws=settings.draws, lam=LAMBDA, lr=1e-3)
    batch = next(plain_batches(bench.images, settings.images))

    def job(_: int) -> int:
        with devices.threads(settings.threads):
            step(batch.images, batch.labels)
        return settings.images

    return job


def trainer(settings: Settings, bench: Bench, *, channels_last: bool) -> Trainer:
    config = TrainConfig(
        sigma=settings.sigma,
        epochs=10_000,  # never reached
        batch=settings.images,
        batch_unit="images",
        lr=1e-3,
        channels_last=channels_last,
        threads=settings.threads,
    )
    method = Gaussian(draws=settings.draws)
    teaching = TeachingConfig(pace="fixed", lambda_last=LAMBDA)
    objective = ObjectiveConfig(method=method, teaching=teaching)
    model = copy.deepcopy(bench.model)
    return Trainer(model, bench.images, config=config, objective=objective, augment=True)


if __name__ == "__main__":
    chosen = tyro.cli(Settings, description=__doc__)
    run(chosen).publish(chosen.out)
