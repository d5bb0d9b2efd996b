"""python -m tests.fuzz.run --seconds 60: how many damaged files each reader took, refused or crashed on."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from random import Random

from smoothheads.errors import SmoothheadsError

from .readers import READERS

SLOW = 5.0  # seconds for one small file


@dataclass
class Tally:
    read: int = 0
    refused: int = 0
    crashes: list[str] = field(default_factory=list)
    slowest: float = 0.0


def fuzz(name: str, root: Path, seeds: Iterable[int]) -> Tally:
    """Every seed is one damaged file; a crash is an exception that is not ours, or a file that takes long."""
    once, tally = READERS[name](root), Tally()
    for seed in seeds:
        started = time.perf_counter()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                once(Random(f"{name} {seed}"))
            tally.read += 1
        except SmoothheadsError:
            tally.refused += 1
        except Exception:
            tally.crashes.append(f"{name} {seed}: {traceback.format_exc()}")
        seconds = time.perf_counter() - started
        tally.slowest = max(tally.slowest, seconds)
        if seconds > SLOW:
            tally.crashes.append(f"{name} {seed}: took {seconds:.1f} s")
    return tally


def _for(seconds: float, first: int) -> Iterator[int]:
    end = time.monotonic() + seconds
    for seed in count(first):
        if time.monotonic() > end:
            return
        yield seed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all readers together")
    parser.add_argument("--first", type=int, default=10_000, help="the first seed; the tests use 0..149")
    parser.add_argument("--only", help="one reader by its name")
    args = parser.parse_args()
    names = [args.only] if args.only else list(READERS)
    crashes: list[str] = []
    print("| reader | files | read | refused | crashed | slowest |\n|---|---:|---:|---:|---:|---:|")
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            tally = fuzz(name, Path(folder), _for(args.seconds / len(names), args.first))
        files = tally.read + tally.refused + len(tally.crashes)
        row = f"| {name} | {files:,} | {tally.read:,} | {tally.refused:,} | {len(tally.crashes)}"
        print(f"{row} | {tally.slowest:.2f} s |", flush=True)
        crashes += tally.crashes
    print("\n".join(crashes[:20]), file=sys.stderr)
    return 1 if crashes else 0


if __name__ == "__main__":
    sys.exit(main())
