"""How many samples the `table` budget takes for the images of published logs: what `bench cluster` simulates.

python benchmarks/record_costs.py imagenet=imagenet-0.50.tsv cifar10=cifar10-0.50.tsv \\
    > src/smoothheads/bench/image_costs.json

Of a log only radii are known, so that votes are drawn: with the probability that the radius shows, or 1/2
where the log abstains.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
from scipy import stats

from smoothheads.certify.algorithm import Terms
from smoothheads.certify.budgets import TableBudget
from smoothheads.results import read_log
from smoothheads.types import Counts, Phase


def samples(p: float, sigma: float, rng: np.random.Generator) -> int:
    """That the budget asks for when a class has probability p."""
    asked = []

    def sample(_: Phase, count: int) -> Counts:
        asked.append(count)
        hits = int(rng.binomial(count, p))
        return np.array([hits, count - hits], dtype=np.int64)

    TableBudget().certify(sample, Terms(sigma=sigma))
    return sum(asked)


def costs(log: Path, first: int | None = None) -> list[int]:
    """Samples of every image, or of the first ones."""
    sigma, rng = float(log.stem.rpartition("-")[2]), np.random.default_rng(0)
    probabilities = stats.norm.cdf(read_log(log).radius[:first] / sigma)
    return [samples(float(p), sigma, rng) for p in probabilities]


def main(arguments: list[str]) -> None:
    logs = (argument.partition("=") for argument in arguments)
    print(json.dumps({name: costs(Path(path)) for name, _, path in logs}))


if __name__ == "__main__":
    main(sys.argv[1:])
