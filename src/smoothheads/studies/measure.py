"""Measures what the paper's cost tables compare: certification and training, in turns on one machine.

Networks are as large as in the paper and have fresh weights, since speed does not depend on what was learnt.
Certification is the plain loop that the reference codes run; training is our own step. K networks that are
trained separately take K times the time of one of them, by definition.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final, TypeVar

import numpy as np
import torch

from smoothheads import device as devices
from smoothheads.data import ArrayDataset, from_arrays
from smoothheads.models import ModelConfig, build
from smoothheads.models.cost import cost
from smoothheads.models.multihead import MultiHead
from smoothheads.provenance import processor, versions
from smoothheads.results.metrics import Floats, MedianInterval, interval_of_median
from smoothheads.studies import experiments
from smoothheads.studies.costs import Costs
from smoothheads.studies.experiments import CostSettings
from smoothheads.training import RunConfig
from smoothheads.training.loop import StepDone, Trainer

K = TypeVar("K")
Job = Callable[[int], int]
"""Does the work of one turn, the same in every turn, and returns how much it was."""
OnRound = Callable[[], None]
"""Called after every round."""
CLASSES: Final = 10
BATCH: Final = 128
"""Samples per forward pass of the plain loop."""


def measure(names: tuple[str, ...], settings: CostSettings, on_round: OnRound | None = None) -> Costs:
    """Returns the costs of all rows of cost tables; each base and structure is measured once.

    Args:
        names: The cost tables.
        settings: How costs are measured.
        on_round: Called after every round, once per round of certification and of training.
    """
    machine = describe_machine(settings.threads)
    configs = {arm: config for name in names for arm, config in _configs(name, settings)}
    shape = (3, settings.side, settings.side)
    data = random_images(shape, 4 * settings.images)
    # Networks that are trained separately: "gaussian dnn5" are five.
    separate = {arm: int(arm.rpartition("dnn")[2]) for arm in configs if " dnn" in arm}
    # K separate networks cost as much as K heads that share nothing, not even the first layer.
    models = {}
    for arm, config in configs.items():
        apart = ModelConfig(arch=config.model.arch, heads=separate.get(arm, 1), cut="input")
        models[arm] = build_network(apart if arm in separate else config.model, shape).eval()
    # Certification does not depend on the base method, so that one network per structure votes.
    voting: dict[str, Job] = {}
    for arm, model in models.items():
        voting.setdefault(arm.split(" ")[1], _voting_job(model, data, settings))
    # Of K separate networks one is trained, and its time counts K times.
    trained = {arm: config for arm, config in configs.items() if arm not in separate}
    trained |= {f"{arm.split(' ')[0]} single": configs[arm] for arm in separate}
    training: dict[str, Job] = {}
    for arm, config in trained.items():
        model = build_network(config.model, shape)
        trainer = Trainer(model, data, config=config.train, objective=config.objective, augment=True)
        training[arm] = training_job(trainer, settings.images)
    clock = time.process_time  # of this process alone, so that a busy machine does not count
    votes = interleaved(voting, settings.rounds, clock, on_round)
    train = interleaved(training, settings.rounds, clock, on_round)
    train |= {arm: train[f"{arm.split(' ')[0]} single"] / count for arm, count in separate.items()}
    counted = {arm: cost(model, shape) for arm, model in models.items()}
    return Costs(
        settings=settings,
        machine=machine,
        train={arm: tuple(rates.tolist()) for arm, rates in train.items()},
        certify={arm: tuple(votes[arm.split(" ")[1]].tolist()) for arm in configs},
        params={arm: each.params for arm, each in counted.items()},
        gflops={arm: each.macs_paper / 1e9 for arm, each in counted.items()},
    )


def interleaved(
    jobs: Mapping[K, Job],
    rounds: int,
    clock: Callable[[], float] = time.perf_counter,
    on_round: OnRound | None = None,
) -> dict[K, Floats]:
    """Returns the work per second of every job in every round.

    The jobs take turns, so that a busy moment of the machine hits all alike; their order rotates from round
    to round. An extra first round only warms up and is not kept.

    Args:
        jobs: The contenders by name.
        rounds: Number of rounds that count.
        clock: Gives seconds: of the wall, or of the processor.
        on_round: Called after every round.
    """
    names = list(jobs)
    # Round 0 warms up: caches, threads, compiled kernels.
    rates: dict[K, list[float]] = {name: [] for name in names}
    for turn in range(rounds + 1):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            started = clock()
            work = jobs[name](turn)
            rates[name].append(work / (clock() - started))
        if on_round:
            on_round()
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


def _voting_job(model: MultiHead, data: ArrayDataset, settings: CostSettings) -> Job:
    """Returns a job that runs the certification loop of the reference codes."""
    x_CHW = torch.from_numpy(data.image(0)).float() / data.info.grid.max_value

    @torch.no_grad()
    def job(_: int) -> int:
        counts = torch.zeros(CLASSES, dtype=torch.long)
        with devices.threads(settings.threads):
            for first in range(0, settings.samples, BATCH):
                # Repeat the image, add noise, take the class of every sample, count.
                x_NCHW = x_CHW.repeat(min(BATCH, settings.samples - first), 1, 1, 1)
                logits_NC = model(x_NCHW + torch.randn_like(x_NCHW)).mean(0)
                counts += torch.bincount(logits_NC.argmax(1), minlength=CLASSES)
        return settings.samples

    return job


def _configs(name: str, settings: CostSettings) -> Iterator[tuple[str, RunConfig]]:
    """Yields the settings of every row at the last sigma, on a network of the chosen size."""
    study = experiments.study(experiments.get(name), experiments.scale("paper"))
    for arm in study.arms:
        config = study.run_config(arm, "", arm.sigmas[-1], 0)
        train: dict[str, Any] = {
            "batch": settings.images * config.objective.method.draws,
            "batch_unit": "draws",
            "epochs": 10_000,
            "lr": 1e-3,
            "threads": settings.threads,
        }
        model = replace(config.model, arch=settings.arch)
        yield arm.name, replace(config, model=model, train=replace(config.train, **train))
