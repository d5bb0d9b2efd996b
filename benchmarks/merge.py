"""How long `merge` takes and how much memory it needs, by the number of shards, on ledgers in our format.

    python -m benchmarks.merge

Ledgers of a made-up network are written first: n = 100,000, ten classes, eleven aggregations of five heads,
votes that are drawn, certificates that follow from them. Every merge runs in a process of its own; times are
without the loading of Python, its memory is the most that the process had.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.config import CertifyConfig
from smoothheads.noise import NOISES
from smoothheads.results.derive import merge
from smoothheads.results.ledger import save
from smoothheads.results.manifest import DataFacts, Manifest, Shard
from smoothheads.results.row import to_line
from smoothheads.types import ABSTAIN, Certificate, Certified, Votes

SIGMA, ALPHA, N0, N, CLASSES = 0.5, 0.001, 100, 100_000, 10
AGGREGATIONS = (
    "ensemble",
    *(f"head-{k}" for k in range(1, 6)),
    *(f"prefix-{k}" for k in range(2, 6)),
    "consensus-2",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    images: int = 10_000
    shards: tuple[int, ...] = (1, 8, 64, 512)


def run(settings: Settings) -> dict[int, dict[str, float]]:
    """Seconds of processor and clock, and megabytes, by the number of shards."""
    rows = [to_line(row_of(index)) for index in range(settings.images)]
    found = {}
    for count in settings.shards:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), rows, count)
            command = [sys.executable, "-m", "benchmarks.merge", "one", folder]
            shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found[count] = json.loads(shown)
    return found


def row_of(index: int) -> Certified:
    """CERTIFY on votes that are drawn for a network whose images are right on a share of 0.4 to 1 of them."""
    generator = np.random.default_rng(index)
    label, share = index % CLASSES, generator.uniform(0.4, 1.0)
    p = np.full(CLASSES, (1 - share) / (CLASSES - 1))
    p[label] = share
    selection, votes = (
        Votes(AGGREGATIONS, generator.multinomial(n, p, size=len(AGGREGATIONS))) for n in (N0, N)
    )
    candidate = int(np.argmax(selection.for_aggregation()))
    k = int(votes.for_aggregation()[candidate])
    p_lower = clopper_pearson_lower(k, N, ALPHA)
    radius = NOISES.get("grid")().radius(p_lower, SIGMA)
    certificate = Certificate(candidate if radius > 0 else ABSTAIN, radius, p_lower, k, N, N0)
    return Certified(index, label, certificate, selection, votes, seconds=1.0)


def write(folder: Path, rows: list[str], count: int) -> None:
    """The ledgers of `count` shards of a run with these rows."""
    manifest = Manifest(
        created="2026-01-01T00:00:00",
        certify=CertifyConfig(sigma=SIGMA, seed=0, alpha=ALPHA, n0=N0, n=N, noise="grid"),
        engine={"engine": "torch", "precision": "float32"},
        aggregations=AGGREGATIONS,
        classes=CLASSES,
        indices=tuple(range(len(rows))),
        correction=0.0,
        weights="0" * 64,
        data=DataFacts(name="made up", fingerprint="1" * 64),
        versions={"torch": "none"},
    )
    for number in range(count):
        shard = folder / f"shard-{number}"
        shard.mkdir()
        told = replace(manifest, shard=Shard(number=number, of=count))
        save(shard, told, rows[number::count])


def one(folder: Path) -> dict[str, float]:
    """Merges the shards in the folder, in this process."""
    import resource  # not on Windows

    started, used = time.monotonic(), time.process_time()
    merge(sorted(folder.glob("shard-*")), folder / "whole")
    return {
        "processor seconds": round(time.process_time() - used, 2),
        "seconds": round(time.monotonic() - started, 2),
        "megabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        print(json.dumps(one(Path(sys.argv[2]))))
    else:
        for count, facts in run(tyro.cli(Settings)).items():
            print(f"{count} shards: " + ", ".join(f"{value:g} {name}" for name, value in facts.items()))
