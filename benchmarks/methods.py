"""What a step of each training method costs, and that each of them learns.

    python -m benchmarks.methods --root CIFAR10 --json methods.json

CIFAR-10 averaged to 16x16, ResNet-8, sigma 0.25: one network and SOME with three heads, a short run each. All
runs advance in turn, one step at a time, and steps are timed by processor time, so that other work on the
machine disturbs all alike. Every step has the same images; costs are medians over the steps, relative to one
network with one draw. Prints Markdown; docs/methods.md has the table.

Reaches, on one thread of an AMD EPYC beside other work (15 November 2026, Python 3.11.7, torch 2.13.0, numpy
2.4.6, float32): a step of 32 images takes 19 ms with gaussian, 7.5 times that with smoothmix, 22 times with
smoothadv, 10 times with macer, 13 times with cat-rs; three heads under SOME cost 1.5 to 1.7 networks.
A second run had the same losses. 324 s of processor time in all.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tyro
from torch import Tensor

from smoothheads.cli.progress import Progress
from smoothheads.data import DataInfo, Dataset, SubsetConfig, load, named, select
from smoothheads.device import threads
from smoothheads.models import ModelConfig, build
from smoothheads.models.cost import cost
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives import (
    AcrTargeted,
    CatRs,
    Consistency,
    Drt,
    Gaussian,
    Macer,
    Method,
    ObjectiveConfig,
    SmoothAdv,
    SmoothMix,
    Stability,
)
from smoothheads.objectives.soft_labels import class_frequencies
from smoothheads.provenance import versions
from smoothheads.report.table import Cell, Table, to_markdown
from smoothheads.training import TrainConfig
from smoothheads.training.loop import EpochDone, StepDone, Trainer
from smoothheads.training.metrics import noisy_accuracy

BASE = "gaussian"
METHODS: dict[str, Method] = {
    BASE: Gaussian(),
    "gaussian, m = 2": Gaussian(draws=2),
    "stability": Stability(),
    "consistency": Consistency(),
    "smoothmix": SmoothMix(warmup=2),
    "smoothadv, m = 4": SmoothAdv(draws=4, warmup=2),
    "macer": Macer(),
    "cat-rs": CatRs(),
    "acr-targeted": AcrTargeted(start=4, every=2, keep=0.1),
    "drt": Drt(),
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    root: str
    """Folder or archive of CIFAR-10."""
    images: int = 320
    batch: int = 32
    """Images of a step."""
    epochs: int = 8
    heads: int = 3
    sigma: float = 0.25
    votes: int = 100
    """Votes of CAT-RS's teacher on every image."""
    test: int = 500
    """Test images on which noisy accuracy is measured, one copy each."""
    only: tuple[str, ...] = ()
    """Methods to run beside the first (default: all)."""
    json: Path | None = None


@dataclass
class Run:
    """One training run that is advanced step by step."""

    label: str
    trainer: Trainer
    expected: float
    """Cost of a step in forward passes of one network and one copy, by the formulas of docs/methods.md."""
    seconds: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    """Means over the epochs."""

    def __post_init__(self) -> None:
        self._events = self.trainer.run()

    def advance(self) -> None:
        """One step, and the end of its epoch if it was the last."""
        start = time.process_time()
        event = next(self._events)
        spent = time.process_time() - start
        if isinstance(event, StepDone) and self._counts(event):
            self.seconds.append(spent)
        if self.trainer.step_in_epoch == self.trainer.loader.steps_per_epoch:
            end = next(self._events)
            assert isinstance(end, EpochDone)
            self.losses.append(end.metrics["loss"])

    def _counts(self, event: StepDone) -> bool:
        """Not the first step of an epoch, which makes its order, nor any before the method's start."""
        method = self.trainer.objective.config.method
        begun = not isinstance(method, AcrTargeted) or event.epoch > method.start
        return begun and self.trainer.step_in_epoch > 1


def forwards(method: Method, heads: int, multi: float) -> float:
    """Forward passes of one network that a step costs per image; `multi` is a pass through all heads."""
    draws = method.draws
    match method:
        case Stability():
            return (3 + 3 * draws) * multi
        case SmoothMix() | CatRs():
            return (2 * method.steps + 6) * draws * multi
        case SmoothAdv() | AcrTargeted():
            return (2 * method.steps + 3) * draws * multi
        case Drt():
            return 9 * draws * heads
        case _:
            return 3 * draws * multi


def make_run(label: str, heads: int, data: Dataset, settings: Settings, soft_labels: Tensor | None) -> Run:
    info, method = data.info, METHODS[label]
    single, model = network(1, info), network(heads, info)
    trainer = Trainer(
        model,
        data,
        config=TrainConfig(
            sigma=settings.sigma,
            epochs=settings.epochs,
            batch=settings.batch,
            batch_unit="images",
            schedule="cosine",
            precision="float32",
        ),
        objective=ObjectiveConfig(method=method),
        augment=True,
        prepared=soft_labels if isinstance(method, CatRs) else None,
    )
    multi = cost(model, info.shape).macs / cost(single, info.shape).macs
    return Run(label, trainer, forwards(method, heads, multi))


def network(heads: int, info: DataInfo) -> MultiHead:
    config = ModelConfig(arch="resnet8", heads=heads)
    return build(config, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=0)


def teacher_votes(data: Dataset, settings: Settings) -> Tensor:
    """Soft labels of a Gaussian network trained for this."""
    run = make_run(BASE, 1, data, settings, None)
    for _ in range(run.trainer.steps):
        run.advance()
    return class_frequencies(run.trainer.model, data, sigma=settings.sigma, draws=settings.votes, seed=0)


def kept_share(curriculum: dict[str, Tensor]) -> float:
    return float((curriculum["weights"] > 0).double().mean())


def result(run: Run, base: Run, test: Dataset, settings: Settings) -> dict[str, Any]:
    model, curriculum = run.trainer.model, run.trainer.curriculum
    accuracy = noisy_accuracy(model, test, sigma=settings.sigma, seed=0, device=torch.device("cpu"))
    kept = {} if curriculum is None else {"images_kept": kept_share(curriculum.state_dict())}
    return {
        "method": run.label,
        "heads": len(model.heads),
        "milliseconds": 1e3 * float(np.median(run.seconds)),
        "cost": float(np.median(run.seconds) / np.median(base.seconds)),
        "expected": run.expected / base.expected,
        "first_loss": run.losses[0],
        "last_loss": run.losses[-1],
        "accuracy": accuracy["accuracy"],
    } | kept


def table(results: list[dict[str, Any]], settings: Settings) -> Table:
    rows = [
        (
            Cell(f"SOME, {each['method']}" if each["heads"] > 1 else each["method"]),
            Cell(f"{each['cost']:.1f}"),
            Cell(f"{each['expected']:.1f}"),
            Cell(f"{each['first_loss']:.2f}"),
            Cell(f"{each['last_loss']:.2f}"),
            Cell(f"{100 * each['accuracy']:.0f}"),
        )
        for each in results
    ]
    return Table(
        title=f"A step of {settings.batch} images, relative to one network with one draw",
        columns=("method", "cost", "formula", "first loss", "last loss", "right under noise, %"),
        rows=tuple(rows),
        notes=(f"{settings.images} images, {settings.epochs} epochs; losses of two methods do not compare.",),
    )


def main(settings: Settings) -> None:
    started = time.process_time()
    data = named(
        "cifar10",
        root=settings.root,
        downscale=2,
        validation=0.0,
        subset=SubsetConfig(first=settings.images),
    )
    labels = [label for label in METHODS if not settings.only or label in (BASE, *settings.only)]
    with threads(1):
        splits = load(data)
        train, test = splits.train, select(splits.test, SubsetConfig(first=settings.test))
        soft = teacher_votes(train, settings)
        runs = [
            make_run(label, heads, train, settings, soft)
            for heads in (1, settings.heads)
            for label in labels
            if heads > 1 or not isinstance(METHODS[label], Drt)
        ]
        with Progress("methods", runs[0].trainer.steps * len(runs)) as progress:
            for _ in range(runs[0].trainer.steps):
                for run in runs:
                    run.advance()
                    progress.add(1)
        results = [result(run, runs[0], test, settings) for run in runs]
    print(to_markdown(table(results, settings)))
    if settings.json is not None:
        facts = {"versions": versions(), "processor_seconds": time.process_time() - started}
        settings.json.write_text(json.dumps(facts | {"results": results}, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
