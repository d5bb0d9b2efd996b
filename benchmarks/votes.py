"""Votes per second of the whole path (noise, network, counting), against the plain loop, ART and K networks.

python -m benchmarks.votes --network resnet20
"""

from __future__ import annotations

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import tyro
from benchmarks.frame import BenchResults, Turns, compared
from benchmarks.timing import Job, describe_machine, interleaved

from benchmarks import contenders
from smoothheads.certify.config import CertifyConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings(Turns):
    network: str = "resnet20"
    """resnet110 and resnet20 (32x32), resnet8 (16x16), lenet (28x28), digits (resnet8 at 8x8)."""
    heads: int = 5
    sigma: float = 0.5
    block: int = 100
    samples: int = 400
    """Noisy samples of each contender in each round."""
    art: bool = True
    """Time ART too (extra bench)."""
    engines: tuple[str, ...] = tuple(contenders.ENGINES)


def run(settings: Settings) -> BenchResults:
    """Measures all contenders in turns."""
    bench = contenders.fresh(settings.network, settings.heads)
    machine = describe_machine(settings.threads)
    config = CertifyConfig(sigma=settings.sigma, block=settings.block, threads=settings.threads)
    field, samples = contenders.Field(), settings.samples
    with tempfile.TemporaryDirectory() as folder:
        baselines = field.add_plain(bench, config, samples)
        if settings.art:
            field.add("ART", lambda: contenders.art_job(bench, config, samples))
        for name in settings.engines:

            def engine_job(name: str = name) -> Job:
                smoothed = contenders.smoothed(bench, config, name, Path(folder))
                return contenders.engine_job(smoothed.certifier.counter, bench, samples)

            field.add(name, engine_job)
        rates = interleaved(field.jobs, settings.rounds)
    shape = "x".join(map(str, bench.info.shape))
    return compared(
        f"votes-{settings.network}-{settings.heads}",
        f"{settings.heads}-head {settings.network}, {shape}: noise, network and counting",
        unit="votes/s",
        baselines=baselines,
        rates=rates,
        machine=machine,
        settings=asdict(settings),
        notes=tuple(field.left_out),
    )


if __name__ == "__main__":
    chosen = tyro.cli(Settings, description=__doc__)
    run(chosen).publish(chosen.out)
