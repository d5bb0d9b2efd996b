"""What `test_ranks` runs in a process of its own: it loads torch once and forks the ranks of every scenario,
which meet as under torchrun; forking is safe only where no other threads live.

python ranked.py FOLDER
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from smoothheads import cli, ranks
from smoothheads.cli import train as command_line
from smoothheads.data import SubsetConfig, named
from smoothheads.models import ModelConfig
from smoothheads.objectives import (
    AcrTargeted,
    CatRs,
    Consistency,
    Drt,
    Gaussian,
    Macer,
    ObjectiveConfig,
    SmoothAdv,
    SmoothMix,
    Stability,
    TeachingConfig,
)
from smoothheads.runs import train as runs
from smoothheads.runs.ensemble import train_members
from smoothheads.training import RunConfig, TrainConfig
from smoothheads.training.loop import EpochDone, StepDone, Trainer

BASE = RunConfig(
    data=named("digits", subset=SubsetConfig(first=34), validation=0.2),
    model=ModelConfig(arch="resnet8", heads=2),
    train=TrainConfig(
        epochs=2, batch=14, batch_unit="images", sigma=0.25, precision="float32", shards=4, lr=0.05
    ),
)
PACED = ObjectiveConfig(
    method=Gaussian(draws=2), teaching=TeachingConfig(pace="class-quantile", class_window=16)
)
OBJECTIVES = {
    "paced": PACED,
    "superloss": ObjectiveConfig(teaching=TeachingConfig(weights="superloss")),
    "stability": ObjectiveConfig(method=Stability()),
    "consistency": ObjectiveConfig(method=Consistency()),
    "smoothmix": ObjectiveConfig(method=SmoothMix(steps=2, mix_step=1)),
    "smoothadv": ObjectiveConfig(method=SmoothAdv(draws=2, steps=2)),
    "ddn": ObjectiveConfig(method=SmoothAdv(draws=2, steps=2, attack="ddn")),
    "macer": ObjectiveConfig(method=Macer(draws=2)),
    "cat-rs": ObjectiveConfig(method=CatRs(draws=2, steps=1, teacher_draws=20)),
    "acr-targeted": ObjectiveConfig(
        method=AcrTargeted(draws=2, start=1, keep=0.0, keep_draws=10, every=1, weigh_draws=14, steps=1)
    ),
    "drt": ObjectiveConfig(method=Drt()),
}
COMMAND = "train digits-single --train.shards 2 --data.subset.first 30 --train.epochs 2 --train.batch 16"


def start(count: int, work: Callable[[int], object]) -> list[int]:
    """Exit codes of `count` forked ranks that do `work(rank)`; negative for a signal."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = []
    for rank in range(count):
        child = os.fork()
        if child == 0:
            os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1"}
            os.environ["MASTER_PORT"] = str(port)
            code = 1
            try:
                code = int(work(rank) or 0)  # type: ignore[call-overload]
            except SystemExit as end:
                code = int(end.code or 0)
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def every_method(folder: Path, names: Iterable[str]) -> Callable[[int], None]:
    def work(_: int) -> None:
        with ranks.joined("cpu"):
            for name in names:
                objective = OBJECTIVES[name]
                if isinstance(objective.method, CatRs):
                    method = replace(objective.method, teacher=str(folder / "teacher"))
                    objective = replace(objective, method=method)
                runs.train_run(replace(BASE, objective=objective), folder / f"{name}-{ranks.count()}")

    return work


def ensemble(folder: Path, config: RunConfig) -> Callable[[int], None]:
    def work(_: int) -> None:
        train_members(config, folder / f"members-{ranks.launched()[1]}", 2)

    return work


def stopped(out: Path, event: int) -> Callable[[int], None]:
    """Rank 0 is asked to end (SIGTERM) at that event; all stop there."""

    def work(_: int) -> None:
        seen = 0

        def ask(_: StepDone | EpochDone) -> None:
            nonlocal seen
            seen += 1
            if seen == event:
                os.kill(os.getpid(), signal.SIGTERM)

        try:
            runs.train_run(replace(BASE, objective=PACED), out, resume=True, on_event=ask)
        except KeyboardInterrupt:
            raise SystemExit(130) from None

    return work


def command(
    folder: Path, name: str, out: list[str] | None = None, more: Sequence[str] = ("", "")
) -> Callable[[int], int]:
    """The command line, with what each rank prints kept in a file, each from an empty folder of its own."""

    def work(rank: int) -> int:
        place = folder / f"{name}-place-{rank}"
        place.mkdir()
        os.chdir(place)
        printed = os.open(folder / f"{name}-printed-{rank}", os.O_WRONLY | os.O_CREAT)
        os.dup2(printed, 1)
        os.dup2(printed, 2)
        where = str(folder / name) if out is None else out[rank]
        return cli.main([*COMMAND.split(), "--out", where, *more[rank].split()])

    return work


def losing(rank: int, inner: Callable[[int], int]) -> Callable[[int], int]:
    """`inner`, where that rank is killed after the second step."""

    def work(this: int) -> int:
        immortal = Trainer.run

        def run(trainer: Trainer) -> Iterator[StepDone | EpochDone]:
            for event in immortal(trainer):
                yield event
                if this == rank and trainer.step == 2:
                    os.kill(os.getpid(), signal.SIGKILL)

        Trainer.run = run  # type: ignore[assignment,method-assign]
        return inner(this)

    return work


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    assert command_line  # imported before the forks, like all that training needs
    codes: dict[str, list[int]] = {}
    single = replace(BASE, model=ModelConfig(arch="resnet8"), train=replace(BASE.train, epochs=1))
    runs.train_run(single, folder / "teacher")  # here, so that everything is imported before the forks
    codes["one"] = start(1, every_method(folder, OBJECTIVES))
    codes["two"] = start(2, every_method(folder, OBJECTIVES))
    codes["four"] = start(4, every_method(folder, ["paced", "cat-rs"]))
    start(1, ensemble(folder, single))
    codes["members"] = start(2, ensemble(folder, single))
    codes["stopped"] = start(2, stopped(folder / "resumed", 2))
    codes["stopped again"] = start(4, stopped(folder / "resumed", 3))
    codes["resumed"] = start(1, stopped(folder / "resumed", 99))
    codes["told"] = start(2, command(folder, "told"))
    codes["lost"] = start(2, losing(1, command(folder, "lost")))
    codes["unlike"] = start(2, command(folder, "unlike", more=("", "--train.lr 0.2")))
    device = ["--train.device cuda"] * 2
    if not torch.cuda.is_available():
        codes["no gpu"] = start(2, command(folder, "gpu", more=device))
    runs.SHARED_SECONDS = 0.2
    places = [str(folder / "apart"), str(folder / "elsewhere")]
    codes["apart"] = start(2, command(folder, "apart", out=places))
    print(json.dumps(codes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
