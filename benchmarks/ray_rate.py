"""Certification on a Ray cluster of this machine against local processes, in turns: samples per second, by
the clock and by the processor time of all processes, which other work on the machine touches less.

python -m benchmarks.ray_rate CHECKPOINT [--workers 2] [--images 40] [--n 10000] [--rounds 5]

The rate is that of the images behind the first ones, from when all workers are at work; how long it takes
until then is told apart.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from smoothheads.bench import machine
from smoothheads.bench.timing import ratio
from smoothheads.certify.config import CertifyConfig
from smoothheads.checkpoint import Checkpoint
from smoothheads.data import Dataset, SubsetConfig, load_test, select
from smoothheads.runs.certify import certify_run
from smoothheads.runs.cluster import Cluster
from smoothheads.runs.layout import open_checkpoint


class Measured(NamedTuple):
    per_second: float
    """Samples, once everybody works."""
    per_processor_second: float
    start: float
    """Seconds until everybody works."""
    whole: float


def processor_seconds() -> float:
    """Of this process and of all below it that live (Linux)."""
    parents, seconds = {}, {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            facts = entry.read_text().rpartition(")")[2].split()
            process = int(entry.parent.name)
            parents[process], seconds[process] = int(facts[1]), int(facts[11]) + int(facts[12])
    found, rest = 0, [os.getpid()]
    while rest:
        process = rest.pop()
        found += seconds[process]
        rest += [each for each, parent in parents.items() if parent == process]
    return found / os.sysconf("SC_CLK_TCK")


def measured(
    ready: Checkpoint, images: Dataset, config: CertifyConfig, workers: int, cluster: Cluster | None
) -> Measured:
    moments: list[float] = []
    spent: list[float] = []

    def on_row(*_: object) -> None:
        moments.append(time.monotonic())
        spent.append(processor_seconds())

    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        certify_run(
            ready,
            images,
            config,
            Path(folder) / "ledger",
            workers=workers,
            cluster=cluster,
            on_row=on_row,
        )
        whole = time.monotonic() - started
    warm = max(2 * workers, len(images) // 10)  # images until all workers are at work
    samples = (len(moments) - warm) * config.budget.typical_samples
    start = moments[warm - 1] - started
    by_clock, by_processor = (values[-1] - values[warm - 1] for values in (moments, spent))
    return Measured(samples / by_clock, samples / by_processor, start, whole)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkpoint", type=Path)
    for name, value in (("workers", 2), ("images", 40), ("n", 10_000), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    args = parser.parse_args()
    ready = open_checkpoint(args.checkpoint)
    images = select(load_test(ready.config.data), SubsetConfig(first=args.images))
    config = CertifyConfig.of(ready.config.train.sigma, n=args.n, seed=0)
    ways = {"--workers": None, "--on ray": Cluster(cores=args.workers)}
    found: dict[str, list[Measured]] = {way: [] for way in ways}
    for number in range(args.rounds):
        for way, cluster in ways.items() if number % 2 else reversed(ways.items()):
            found[way].append(measured(ready, images, config, args.workers, cluster))
            a, b, start, whole = found[way][-1]
            rates = f"{a:7,.0f} samples/s, {b:6,.0f} per processor second"
            print(f"{way:<10} {rates}, {start:5.1f} s to start, {whole:6.1f} s", flush=True)
    for what in ("per_second", "per_processor_second"):
        ours, theirs = (np.array([getattr(each, what) for each in found[way]]) for way in reversed(ways))
        print(f"{what}, Ray's against --workers: {ratio(ours, theirs)}")
    print(machine.line(machine.describe(1)))


if __name__ == "__main__":
    main()
