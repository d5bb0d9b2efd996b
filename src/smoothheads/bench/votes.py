"""smoothheads bench votes: votes per second of the whole path (noise, network, counting)."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from smoothheads.bench import contenders, machine, networks, roofline
from smoothheads.bench.contenders import Field
from smoothheads.bench.networks import Bench
from smoothheads.bench.outcome import BenchOutcome, Facts, compared
from smoothheads.bench.plain import MeanOfHeads
from smoothheads.bench.timing import OnRound, Turns, interleaved
from smoothheads.certify.config import CertifyConfig
from smoothheads.models.cost import cost
from smoothheads.report.table import Cell, number


@dataclass(frozen=True, slots=True, kw_only=True)
class VotesSettings(Turns):
    network: str = "resnet20"
    """resnet110 and resnet20 (32x32), resnet8 (16x16), lenet (28x28), digits (resnet8 at 8x8)."""
    heads: int = 5
    sigma: float = 0.5
    block: int = 100
    samples: int = 400
    """Noisy samples of each contender in each round."""
    art: bool = True
    """Time the Adversarial Robustness Toolbox too (extra bench)."""
    engines: tuple[str, ...] = contenders.QUICK
    """Also known: torch compiled, torch bfloat16 compiled, which take a minute or more to set up."""
    profile: bool = False
    """Say where the time goes, and what the machine can do at most."""


def run(settings: VotesSettings, on_round: OnRound | None = None) -> BenchOutcome:
    size = networks.named(settings.network)
    bench = networks.make(size, settings.heads)
    before = machine.describe(settings.threads)
    config = CertifyConfig.of(settings.sigma, block=settings.block, threads=settings.threads)
    with tempfile.TemporaryDirectory() as folder:
        field, samples = Field(), settings.samples
        baselines = field.add_plain(bench, config, samples)
        if settings.art:
            field.add("ART", lambda: contenders.art_job(MeanOfHeads(bench.model), bench, config, samples))
        for name in settings.engines:
            changed = config.changed(**contenders.settings_of(name))
            field.add_engine(name, bench, changed, Path(folder), samples)
        rates = interleaved(field.jobs, settings.rounds, on_round=on_round)
        speeds = {name: float(np.median(rates[name])) for name in field.engines}
        facts, notes = _profile(field, bench, speeds, settings.threads) if settings.profile else ({}, [])
    shape = "x".join(map(str, size.shape))
    return compared(
        f"votes-{settings.network}-{settings.heads}",
        f"{settings.heads}-head {settings.network}, {shape}: noise, network and counting",
        unit="votes/s",
        baselines=baselines,
        rates=rates,
        machine=before,
        settings=asdict(settings),
        facts=facts,
        notes=(*field.left_out, *notes),
    )


def _profile(field: Field, bench: Bench, speeds: dict[str, float], threads: int) -> tuple[Facts, list[str]]:
    """Arithmetic reached, share of the limit, and the parts of a vote; then the limits and the operators."""
    operations = cost(bench.model, bench.info.shape).flops
    limits = roofline.peaks(threads, tuple(field.engines))
    facts: dict[str, dict[str, Cell]] = {}
    for name, engine in field.engines.items():
        reached, limit = speeds[name] * operations, limits[name]
        parts = roofline.shares(engine, bench)
        facts[name] = {
            "Gop/s": number(reached, ".0f", 1e-9),
            "of limit": number(reached / limit, ".1%"),
            "noise": number(parts.noise / parts.whole, ".1%"),
            "network": number(parts.network / parts.whole, ".1%"),
            "counting": number(parts.counting / parts.whole, ".1%"),
        }
    notes = [
        "Limits, Gop/s: " + ", ".join(f"{name} {rate / 1e9:.0f}" for name, rate in limits.items()) + ".",
        "noise, network, counting: each alone, as a share of the whole; noise is drawn beside the network.",
    ]
    if "torch" in field.engines:
        job = contenders.engine_job(field.engines["torch"], bench, field.engines["torch"].noise.block_size)
        notes.append(roofline.operators(partial(job, 0)))
    return facts, notes
