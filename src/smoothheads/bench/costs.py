"""What the paper's cost tables compare, measured here: certification and training, contenders in turns.

Networks are as large as in the paper and have fresh weights, since speed does not depend on what was learnt.
Certification is the plain loop that the reference codes run; training is our step. K networks trained apart
take K times one of them, by definition.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from smoothheads import device as devices
from smoothheads.bench import machine, plain
from smoothheads.bench.plain import MeanOfHeads
from smoothheads.bench.timing import Floats, Job, OnRound, interleaved, interval_of_median
from smoothheads.data import ArrayDataset, from_arrays
from smoothheads.models import ModelConfig, MultiHead, build
from smoothheads.models.cost import cost
from smoothheads.results.intervals import MedianInterval
from smoothheads.studies import experiments
from smoothheads.studies.configs import run_config
from smoothheads.studies.spec import Arm, Study
from smoothheads.training import RunConfig, StepDone, Trainer

Key = tuple[str, str]
"""Base method and structure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostSettings:
    arch: str = "resnet110"
    side: int = 32
    images: int = 32
    """Images per training step; times are per image. With few of them the optimiser and the cosine term,
    which cost the same for any number, weigh more than in a real run."""
    samples: int = 100
    """Noisy images per turn of a certification."""
    rounds: int = 7
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Costs:
    """Rates (images or samples per second) of every round, and arithmetic, by base and structure."""

    settings: Mapping[str, Any]
    machine: Mapping[str, Any]
    train: Mapping[Key, Floats]
    certify: Mapping[Key, Floats]
    params: Mapping[Key, int]
    gflops: Mapping[Key, float]

    def ratios(self) -> dict[tuple[str, str, str, str], MedianInterval]:
        """Of time or arithmetic, by cost, baseline's base, this and the baseline structure, with the 95 %
        interval of the median. This one has the baseline's base, or its own where there is none of that."""
        found = {}
        for name in ("train", "certify", "gflops"):
            costs: Mapping[Key, Any] = getattr(self, name)
            for (base, baseline), this in itertools.product(costs, dict.fromkeys(key[1] for key in costs)):
                own = (
                    base if (base, this) in costs else next(b for b, structure in costs if structure == this)
                )
                ratio = self.ratio(name, (own, this), (base, baseline))
                if this != baseline and ratio is not None:
                    found[name, base, this, baseline] = ratio
        return found

    def ratio(self, name: str, this: Key, baseline: Key) -> MedianInterval | None:
        """Of one cost, this over baseline; none where one of them was not measured."""
        costs: Mapping[Key, Any] = getattr(self, name)
        if this not in costs or baseline not in costs:
            return None
        mine, theirs = np.atleast_1d(costs[this]), np.atleast_1d(costs[baseline])
        return interval_of_median(mine / theirs if name == "gflops" else theirs / mine)


def measure(names: tuple[str, ...], settings: CostSettings, on_round: OnRound | None = None) -> Costs:
    """All rows of the cost tables `names`, each base and structure once."""
    before = machine.describe(settings.threads)
    rows = {key: config for name in names for key, config in _rows(name, settings)}
    networks = {key: _network(key, config, settings) for key, config in rows.items()}
    data = _images(settings)
    voting: dict[Any, Job] = {}
    for base, structure in rows:
        if structure not in {
            known for _, known in voting
        }:  # certification does not depend on the base method
            voting["any", structure] = _votes(networks[base, structure], data, settings)
    trained = {key: config for key, config in rows.items() if not key[1].startswith("dnn")}
    trained |= {(base, "single"): config for (base, s), config in rows.items() if s.startswith("dnn")}
    training = {key: _steps(config, data, settings) for key, config in trained.items()}
    clock = time.process_time  # of this process alone, so that a busy machine does not count
    with devices.threads(settings.threads):
        rates = interleaved({str(key): job for key, job in voting.items()}, settings.rounds, clock, on_round)
        speeds = interleaved(
            {str(key): job for key, job in training.items()}, settings.rounds, clock, on_round
        )
    certify = {(base, structure): rates[str(("any", structure))] for base, structure in rows}
    train = {key: speeds[str(key)] for key in training}
    train |= {key: train[key[0], "single"] / int(key[1][3:]) for key in rows if key[1].startswith("dnn")}
    counted = {key: cost(network, (3, settings.side, settings.side)) for key, network in networks.items()}
    return Costs(
        settings=asdict(settings),
        machine=before,
        train=train,
        certify=certify,
        params={key: each.params for key, each in counted.items()},
        gflops={key: each.macs_paper / 1e9 for key, each in counted.items()},
    )


def to_json(costs: Costs) -> dict[str, Any]:
    def plain_keys(values: Mapping[Key, Any]) -> dict[str, Any]:
        return {" ".join(key): v.tolist() if isinstance(v, np.ndarray) else v for key, v in values.items()}

    parts = {name: plain_keys(getattr(costs, name)) for name in ("train", "certify", "params", "gflops")}
    return {"settings": dict(costs.settings), "machine": dict(costs.machine), **parts}


def from_json(data: Mapping[str, Any]) -> Costs:
    def keys(values: Mapping[str, Any]) -> dict[Key, Any]:
        pairs = {(name.split(" ")[0], name.split(" ")[1]): v for name, v in values.items()}
        return {key: np.array(v) if isinstance(v, list) else v for key, v in pairs.items()}

    parts = {name: keys(data[name]) for name in ("train", "certify", "params", "gflops")}
    return Costs(data["settings"], data["machine"], **parts)


def _rows(name: str, settings: CostSettings) -> Iterator[tuple[Key, RunConfig]]:
    """What the last sigma's rows are told, on a network of the chosen size."""
    study = experiments.study(experiments.get(name), experiments.scale("paper"))
    for arm in study.arms:
        base, structure = arm.name.split(" ")
        yield (base, structure), _config(study, arm, settings)


def _config(study: Study, arm: Arm, settings: CostSettings) -> RunConfig:
    config = run_config(study, arm, "", arm.sigmas[-1], 0)
    batch = settings.images * config.objective.method.draws
    return replace(
        config,
        model=replace(config.model, arch=settings.arch),
        train=replace(config.train, batch=batch, batch_unit="draws", epochs=10_000, lr=1e-3),
    )


def _network(key: Key, config: RunConfig, settings: CostSettings) -> MultiHead:
    """With eyes only for the size: K networks are K heads from the input on."""
    model = config.model
    if key[1].startswith("dnn"):
        model = ModelConfig(arch=model.arch, heads=int(key[1][3:]), cut="input")
    return _built(model, settings).eval()


def _built(model: ModelConfig, settings: CostSettings) -> MultiHead:
    half = (0.5,) * 3
    shape = (3, settings.side, settings.side)
    return build(model, shape=shape, classes=10, mean=half, std=half, seed=0)


def _images(settings: CostSettings) -> ArrayDataset:
    count = 4 * settings.images
    pixels = np.random.default_rng(0).integers(
        0, 256, (count, 3, settings.side, settings.side), dtype=np.uint8
    )
    return from_arrays(pixels, np.arange(count) % 10, classes=10, name="random")


def _votes(network: MultiHead, data: ArrayDataset, settings: CostSettings) -> Job:
    x_CHW = torch.from_numpy(data.image(0)).float() / 255

    def job(_: int) -> int:
        samples = settings.samples
        plain.sample_noise(MeanOfHeads(network), x_CHW, samples, sigma=1.0, batch=samples, classes=10)
        return samples

    return job


def _steps(config: RunConfig, data: ArrayDataset, settings: CostSettings) -> Job:
    trainer = Trainer(
        _built(config.model, settings), data, config=config.train, objective=config.objective, augment=True
    )
    steps = (event for event in trainer.run() if isinstance(event, StepDone))
    return partial(_step, steps, settings.images)


def _step(steps: Iterator[StepDone], images: int, _: int) -> int:
    next(steps)
    return images
