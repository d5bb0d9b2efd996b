"""Certification on a Ray cluster of this machine against local processes, in turns: samples per second.

python -m benchmarks.ray_rate CHECKPOINT [--workers 2] [--images 40] [--n 10000] [--rounds 5]

The rate is that of the images behind the first ones, from when all workers are at work; how long it takes
until then is told apart.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np

from smoothheads.bench import machine
from smoothheads.bench.timing import ratio
from smoothheads.certify.config import CertifyConfig
from smoothheads.checkpoint import Checkpoint
from smoothheads.data import Dataset, SubsetConfig, load_test, select
from smoothheads.runs.certify import certify_run
from smoothheads.runs.cluster import Cluster
from smoothheads.runs.layout import open_checkpoint


def measured(
    ready: Checkpoint, images: Dataset, config: CertifyConfig, workers: int, cluster: Cluster | None
) -> tuple[float, float, float]:
    """Samples per second once everybody works, seconds until the first images, and seconds in all."""
    moments: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        certify_run(
            ready,
            images,
            config,
            Path(folder) / "ledger",
            workers=workers,
            cluster=cluster,
            on_row=lambda *_: moments.append(time.monotonic()),
        )
        whole = time.monotonic() - started
    warm = max(2 * workers, len(images) // 10)  # images until all workers are at work
    samples = (len(moments) - warm) * config.budget.typical_samples
    return samples / (moments[-1] - moments[warm - 1]), moments[warm - 1] - started, whole


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
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    for number in range(args.rounds):
        for way, cluster in ways.items() if number % 2 else reversed(ways.items()):
            found[way].append(measured(ready, images, config, args.workers, cluster))
            rate, start, whole = found[way][-1]
            print(f"{way:<10} {rate:9,.0f} samples/s, {start:5.1f} s to start, {whole:6.1f} s", flush=True)
    rates = {way: np.array([each[0] for each in values]) for way, values in found.items()}
    print(f"rate of Ray: {ratio(rates['--on ray'], rates['--workers'])}")
    print(machine.line(machine.describe(1)))


if __name__ == "__main__":
    main()
