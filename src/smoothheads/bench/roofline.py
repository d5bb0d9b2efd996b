"""Where the time goes, and how far it is to the machine's limit."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch.profiler import ProfilerActivity, profile

from smoothheads import device as devices
from smoothheads.bench import contenders, networks
from smoothheads.bench.networks import Bench
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines.base import BlockEngine
from smoothheads.models.aggregate import decide
from smoothheads.models.cost import cost
from smoothheads.types import Phase

ENOUGH_SECONDS: Final = 1.0  # for repetitions, of which there are two at least
SIDE: Final = 2048  # of the matrices whose product shows what the processor can do
IDEAL_COPIES: Final = 32
BLOCKS: Final = 4  # of the whole path, so that noise is drawn ahead


@dataclass(frozen=True, slots=True)
class Shares:
    """Seconds per noisy sample of the three parts of a vote, each alone, and of the whole path."""

    noise: float
    network: float
    counting: float
    whole: float


def peaks(threads: int, engines: Sequence[str] = contenders.QUICK) -> dict[str, float]:
    """Operations per second at most: of a matrix product, and of wide convolutions in these engines."""
    found = _matrix_peaks(threads)
    bench = networks.ideal()
    operations = cost(bench.model, bench.info.shape).flops
    config = CertifyConfig.of(0.5, n=10_000, block=IDEAL_COPIES, threads=threads)
    with tempfile.TemporaryDirectory() as folder:
        field = contenders.Field()
        for name in engines:
            each = config.changed(**contenders.settings_of(name))
            field.add_engine(name, bench, each, Path(folder), IDEAL_COPIES)
        for name, job in field.jobs.items():
            job(0)
            found[name] = operations * IDEAL_COPIES / best_seconds(partial(job, 1))
    return found


def _matrix_peaks(threads: int) -> dict[str, float]:
    """For each precision that the processor computes natively."""
    kinds = {"float32": torch.float32}
    if devices.computes_bfloat16(torch.device("cpu")):
        kinds["bfloat16"] = torch.bfloat16
    found = {}
    with devices.threads(threads), torch.inference_mode():
        for name, dtype in kinds.items():
            matrix = torch.full((SIDE, SIDE), 0.5, dtype=dtype)
            found[f"{name} matrix product"] = 2 * SIDE**3 / best_seconds(partial(torch.mm, matrix, matrix))
    return found


def shares(engine: BlockEngine, bench: Bench) -> Shares:
    """Of one block; in the whole path the noise is drawn beside the network, so parts may exceed the sum."""
    image, size = bench.image(), engine.noise.block_size
    with devices.threads(engine.threads), torch.inference_mode():
        samples = engine._prepared(engine.noise.noisy(image, 0, Phase.PILOT, 0))
        logits_LNC = engine._logits(samples)
        parts = (
            lambda: engine._prepared(engine.noise.noisy(image, 0, Phase.PILOT, 0)),
            lambda: engine._logits(samples),
            lambda: engine._counted(decide(logits_LNC, engine.weights_L)),
        )
        noise, network, counting = (best_seconds(part) / size for part in parts)
        whole = best_seconds(lambda: engine.votes(image, 0, Phase.PILOT, 0, BLOCKS * size)) / (BLOCKS * size)
    return Shares(noise, network, counting, whole)


def operators(work: Callable[[], object], most: int = 8) -> str:
    """The torch operators that take most of the time, and their share of it, for people."""
    work()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        work()
    events: Any = found.key_averages()
    total = sum(event.self_cpu_time_total for event in events)
    busiest = sorted(events, key=lambda event: -event.self_cpu_time_total)[:most]
    shares = (f"{event.key} {event.self_cpu_time_total / total:.0%}" for event in busiest)
    return f"torch operators: {', '.join(shares)}."


def best_seconds(work: Callable[[], object]) -> float:
    times: list[float] = []
    while len(times) < 2 or sum(times) < ENOUGH_SECONDS:
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)
