"""Measures what the paper's cost tables compare: certification and training, in turns on one machine.

    python -m benchmarks.costs --out benchmarks/paper

Networks are as large as in the paper and have fresh weights, since speed does not depend on what was learnt.
Certification is the plain loop that the reference codes run; training is our own step. K networks that are
trained separately take K times the time of one of them, by definition. `smoothheads paper table5 --from DIR`
shows the ratios.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import tyro
from benchmarks.contenders import Bench, plain_job
from benchmarks.plain import MeanOfHeads
from benchmarks.timing import (
    Job,
    build_network,
    describe_machine,
    interleaved,
    random_images,
    training_job,
)

from smoothheads.certify.config import CertifyConfig
from smoothheads.models import ModelConfig
from smoothheads.models.cost import cost
from smoothheads.studies import experiments
from smoothheads.studies.costs import Costs, CostSettings, save
from smoothheads.training import RunConfig
from smoothheads.training.loop import Trainer


@dataclass(frozen=True, kw_only=True)
class Options:
    out: Path = Path("bench")
    """Folder of costs.json."""
    tables: tuple[str, ...] = ("table2", "table5", "table8")
    settings: CostSettings = field(default_factory=CostSettings)


def measure(names: tuple[str, ...], settings: CostSettings) -> Costs:
    """Returns the costs of all rows of cost tables; each base and structure is measured once."""
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
    certify = CertifyConfig(sigma=1.0, threads=settings.threads)
    for arm, model in models.items():
        bench = Bench(model, data, lambda: data)
        job = plain_job(MeanOfHeads(model), bench, certify, settings.samples)
        voting.setdefault(arm.split(" ")[1], job)
    # Of K separate networks one is trained, and its time counts K times.
    trained = {arm: config for arm, config in configs.items() if arm not in separate}
    trained |= {f"{arm.split(' ')[0]} single": configs[arm] for arm in separate}
    training: dict[str, Job] = {}
    for arm, config in trained.items():
        model = build_network(config.model, shape)
        trainer = Trainer(model, data, config=config.train, objective=config.objective, augment=True)
        training[arm] = training_job(trainer, settings.images)
    clock = time.process_time  # of this process alone, so that a busy machine does not count
    votes = interleaved(voting, settings.rounds, clock)
    train = interleaved(training, settings.rounds, clock)
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


def main(options: Options) -> None:
    save(measure(options.tables, options.settings), options.out)


if __name__ == "__main__":
    main(tyro.cli(Options, description=__doc__))
