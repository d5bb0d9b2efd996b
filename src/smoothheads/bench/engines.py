"""smoothheads bench engines CHECKPOINT: what each engine makes of a trained network."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from smoothheads.bench import contenders, machine
from smoothheads.bench.contenders import Field
from smoothheads.bench.networks import Bench, TrainedNetwork
from smoothheads.bench.outcome import BenchOutcome, compared, quality
from smoothheads.bench.timing import OnRound, Turns, interleaved
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import Engine, work_of
from smoothheads.certify.engines.lazy import Lazy
from smoothheads.report.table import Cell, number
from smoothheads.smoothed import Smoothed
from smoothheads.types import Phase

REFERENCE: Final = "torch"


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesSettings(Turns):
    sigma: float
    images: int = 20
    """Test images, spread evenly, that every engine certifies."""
    n: int = 1000
    alpha: float = 0.001
    block: int = 100
    samples: int = 400
    """Noisy samples of each engine in each timed round."""
    engines: tuple[str, ...] = contenders.QUICK
    """Beside torch, which all are compared with; also known: torch compiled, torch bfloat16 compiled."""


def run(settings: EnginesSettings, network: TrainedNetwork, on_round: OnRound) -> BenchOutcome:
    bench = network.bench(settings.images)
    config = CertifyConfig.of(
        settings.sigma,
        n=settings.n,
        alpha=settings.alpha,
        block=settings.block,
        threads=settings.threads,
    )
    before = machine.describe(settings.threads)
    field = Field()
    baselines = field.add_plain(bench, config, settings.samples)
    for kind, changes in _kinds(settings, len(bench.model.heads)).items():
        field.add_engine(kind, bench, config.changed(**changes), network.engines, settings.samples)
    rates = interleaved(field.jobs, settings.rounds, on_round=on_round)
    top = _scores(field.engines[REFERENCE], bench, settings.block)
    facts = {
        kind: _agreement(smoothed.engine, top, bench, settings.block) | _certified(smoothed, bench)
        for kind, smoothed in field.smoothed.items()
    }
    return compared(
        f"engines-{network.name}",
        f"{network.name}: {len(bench.images)} images, n = {settings.n}, alpha = {settings.alpha:g}, "
        f"sigma = {settings.sigma:g}",
        unit="votes/s",
        baselines=baselines,
        rates=rates,
        machine=before,
        settings=asdict(settings),
        facts=facts,
        notes=(
            "agrees: samples on which the engine's class is that of torch in float32; consensus: samples on "
            "which the first K heads agree, so that the others need not be asked.",
            *field.left_out,
        ),
    )


def _kinds(settings: EnginesSettings, heads: int) -> dict[str, dict[str, Any]]:
    """The settings of every engine, and of the lazy consensus of two heads in each precision."""
    names = dict.fromkeys((REFERENCE, *settings.engines))
    kinds = {name: dict(contenders.settings_of(name)) for name in names}
    lazy = {"rule": "consensus-2", "lazy_consensus": True}
    if heads > 2:
        kinds |= {f"{name}, lazy consensus-2": changes | lazy for name, changes in list(kinds.items())}
    return kinds


def _scores(engine: Engine, bench: Bench, samples: int) -> NDArray[np.int64]:
    """The ensemble's class of every sample of every image."""
    tops = [
        engine.scores(bench.images.image(i), int(index), Phase.SCORES, 0, samples).argmax(1)
        for i, index in enumerate(bench.images.indices)
    ]
    return np.concatenate(tops)


def _agreement(engine: Engine, top: NDArray[np.int64], bench: Bench, samples: int) -> dict[str, Cell]:
    if isinstance(engine, Lazy):
        return {}
    share = float((_scores(engine, bench, samples) == top).mean())
    return {"agrees": number(share, ".2%")}


def _certified(smoothed: Smoothed, bench: Bench) -> dict[str, Cell]:
    before = work_of(smoothed.engine)  # in the timed rounds, on one image
    certificates = [record.certificate for record in smoothed.records(bench.images)]
    shown = quality(certificates, bench.images.labels, smoothed.max_radius)
    work = work_of(smoothed.engine) - before
    if work.samples:
        shown["consensus"] = number(work.agreement, ".1%")
        shown["passes saved"] = number(work.saved, ".1%")
    return shown
