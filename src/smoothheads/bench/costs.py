"""What the paper's cost tables compare, measured here: certification and training, contenders in turns.

Networks are as large as in the paper and have fresh weights, since speed does not depend on what was learnt.
Certification is the plain loop that the reference codes run; training is our step. K networks trained apart
take K times one of them, by definition.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any

from smoothheads.bench import machine, networks
from smoothheads.bench.contenders import plain_job
from smoothheads.bench.plain import MeanOfHeads
from smoothheads.bench.timing import Job, OnRound, interleaved
from smoothheads.bench.train import training_job
from smoothheads.data import ArrayDataset
from smoothheads.models import ModelConfig
from smoothheads.models.cost import cost
from smoothheads.studies import experiments
from smoothheads.studies.costs import Costs, Key
from smoothheads.training import RunConfig, Trainer


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


def measure(names: tuple[str, ...], settings: CostSettings, on_round: OnRound | None = None) -> Costs:
    """All rows of the cost tables `names`, each base and structure once."""
    measured_on = machine.describe(settings.threads)
    rows = {key: config for name in names for key, config in _rows(name, settings)}
    shape = (3, settings.side, settings.side)
    data = networks.random_images(shape, 4 * settings.images)
    models = {key: networks.build(_model(key, config), shape).eval() for key, config in rows.items()}
    voting: dict[str, Job] = {}  # by structure: certification does not depend on the base method
    for (_, structure), model in models.items():
        if structure not in voting:
            voting[structure] = plain_job(
                MeanOfHeads(model), data, settings.samples, sigma=1.0, threads=settings.threads
            )
    trained = {key: config for key, config in rows.items() if not _apart(key)}
    trained |= {(key[0], "single"): config for key, config in rows.items() if _apart(key)}
    training = {key: training_job(_trainer(config, data), settings.images) for key, config in trained.items()}
    clock = time.process_time  # of this process alone, so that a busy machine does not count
    rates = interleaved(voting, settings.rounds, clock, on_round)
    train = interleaved(training, settings.rounds, clock, on_round)
    train |= {key: train[key[0], "single"] / _apart(key) for key in rows if _apart(key)}
    counted = {key: cost(model, shape) for key, model in models.items()}
    return Costs(
        settings=asdict(settings),
        machine=measured_on,
        train=train,
        certify={key: rates[key[1]] for key in rows},
        params={key: each.params for key, each in counted.items()},
        gflops={key: each.macs_paper / 1e9 for key, each in counted.items()},
    )


def _rows(name: str, settings: CostSettings) -> Iterator[tuple[Key, RunConfig]]:
    """What the last sigma's rows are told, on a network of the chosen size."""
    study = experiments.study(experiments.get(name), experiments.scale("paper"))
    for arm in study.arms:
        base, structure = arm.name.split(" ")
        config = study.run_config(arm, "", arm.sigmas[-1], 0)
        batch = settings.images * config.objective.method.draws
        train: dict[str, Any] = {"batch": batch, "batch_unit": "draws", "epochs": 10_000, "lr": 1e-3}
        yield (
            (base, structure),
            replace(
                config,
                model=replace(config.model, arch=settings.arch),
                train=replace(config.train, threads=settings.threads, **train),
            ),
        )


def _apart(key: Key) -> int:
    """How many networks are trained apart; 0 for one that is trained as a whole."""
    return int(key[1][3:]) if key[1].startswith("dnn") else 0


def _model(key: Key, config: RunConfig) -> ModelConfig:
    """With eyes only for the size: K networks are K heads from the input on."""
    count = _apart(key)
    return ModelConfig(arch=config.model.arch, heads=count, cut="input") if count else config.model


def _trainer(config: RunConfig, data: ArrayDataset) -> Trainer:
    model = networks.build(config.model, data.info.shape)
    return Trainer(model, data, config=config.train, objective=config.objective, augment=True)
