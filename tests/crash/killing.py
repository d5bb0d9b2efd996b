"""What `test_kill` runs in a process of its own: forking is safe only where no other threads live.

python killing.py FOLDER
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from smoothheads import checkpoint
from smoothheads.certify.config import CertifyConfig
from smoothheads.data import SubsetConfig, load, named, select
from smoothheads.models import ModelConfig, build
from smoothheads.objectives import Gaussian, ObjectiveConfig
from smoothheads.results.derive import merge
from smoothheads.runs.certify import certify_run
from smoothheads.runs.export import export_run
from smoothheads.runs.train import train_run
from smoothheads.training import RunConfig, TrainConfig

TRAIN = RunConfig(
    data=named("digits", subset=SubsetConfig(first=40)),
    model=ModelConfig(arch="resnet8", heads=2),
    objective=ObjectiveConfig(method=Gaussian(draws=1)),
    train=TrainConfig(epochs=2, batch=12, lr=0.1),
)


def die_at(calls: int) -> None:
    """From now on the process kills itself at its `calls`-th fsync or rename, before doing it."""
    left = calls

    def deadly(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    os.fsync, os.replace = deadly(os.fsync), deadly(os.replace)


def in_child(
    work: Callable[[], object], prepare: Callable[[], object], kill_after: float | None = None
) -> bool:
    """Runs `work` in a forked process, which may be killed; True if it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            prepare()
            work()
            os._exit(0)
        except BaseException:
            os._exit(1)
    if kill_after is not None:
        time.sleep(kill_after)
        os.kill(child, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL), "the run failed instead of dying or finishing"
    return code == 0


def survive(work: Callable[[], object]) -> int:
    """Kills `work` at its first, second, third, ... write, starting again, until it gets through."""
    for kills in range(1, 200):
        if in_child(work, lambda calls=kills: die_at(calls)):  # type: ignore[misc]
            return kills - 1
    raise AssertionError("no end")


def at_random(work: Callable[[int], object]) -> int:
    """Kills runs fifty times at random moments; one that came to its end before is followed by another one,
    and the last comes to its end."""
    chance, run, kills = random.Random(0), 0, 0
    while kills < 50:
        through = in_child(partial(work, run), lambda: None, kill_after=chance.uniform(0, 0.1))
        run, kills = run + through, kills + (not through)
    work(run)
    return kills


def certifier(folder: Path, shard: tuple[int, int] | None = None) -> Callable[[Path], Path]:
    data = load(named("digits", subset=SubsetConfig(first=40)))
    info, model = data.train.info, ModelConfig(arch="resnet8", heads=2)
    network = build(model, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=0)
    if not (folder / "network").exists():
        checkpoint.save(folder / "network", network, RunConfig(model=model), info)
    ready = checkpoint.load(folder / "network")
    images = select(data.test, SubsetConfig(first=30))
    config = CertifyConfig(sigma=0.5, seed=0, n0=5, n=20, block=5)
    return lambda out: certify_run(ready, images, config, out, shard=shard)


def into_empty_folders(folder: Path) -> tuple[int, int]:
    """Kills `merge` and `export` at every write into a folder that was there and empty before."""
    for name in ("merge-writes", "export-writes"):
        (folder / name).mkdir()
    shards = [certifier(folder, (number, 2))(folder / f"ledger-{number}-of-2") for number in range(2)]
    merge(shards, folder / "merged")
    export_run(folder / "merged", folder / "exported", checkpoint=folder / "network")
    merged, exported = folder / "merge-writes", folder / "export-writes"
    # A kill after the last write leaves a complete folder, which the command rightly refuses to write again.
    kills = survive(lambda: any(merged.iterdir()) or merge(shards, merged))
    network = folder / "network"
    return kills, survive(
        lambda: any(exported.iterdir()) or export_run(folder / "merged", exported, checkpoint=network)
    )


def main(folder: Path) -> None:
    """Leaves runs that were never interrupted and runs that were killed, and prints how often those were."""
    torch.set_num_threads(1)
    train_run(TRAIN, folder / "trained")
    train = survive(lambda: train_run(TRAIN, folder / "train-writes", resume=True, save_seconds=0))
    certify = certifier(folder)
    certify(folder / "certified")
    writes = survive(lambda: certify(folder / "certify-writes"))
    kills = at_random(lambda run: certify(folder / f"certify-random-{run}"))
    merged, exported = into_empty_folders(folder)
    times = {"train-writes": train, "certify-writes": writes, "certify-random": kills}
    print(json.dumps(times | {"merge-writes": merged, "export-writes": exported}))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
