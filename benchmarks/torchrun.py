"""How much faster two ranks of torchrun train than one process that computes the same micro-batches.

    python -m benchmarks.torchrun

One process and the ranks are started once, and take turns: a step each, round by round, while the other side
waits. The clock ratio is what a user sees. Beside it stands what other work on the machine disturbs less: the
processor time of a step in one process against that of the busiest rank.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
import tyro

from smoothheads import ranks
from smoothheads.bench import machine, networks
from smoothheads.bench.timing import interleaved, ratio
from smoothheads.device import threads
from smoothheads.objectives import Gaussian, ObjectiveConfig
from smoothheads.results.intervals import interval_of_median
from smoothheads.training import StepDone, TrainConfig, Trainer

SERVE = "serve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    network: str = "resnet20"
    heads: int = 5
    draws: int = 2
    images: int = 128
    """Images per step."""
    shards: int = 2
    """Micro-batches of a step, for one process and for the ranks."""
    ranks: int = 2
    rounds: int = 11
    patience: float = 0.0
    """Seconds that are spent, all in all, to let a round begin while the machine is idle (Linux)."""


@dataclass(frozen=True, slots=True)
class Side:
    """A started side: what it takes and gives, and how long it took to be ready."""

    stdin: IO[str]
    stdout: IO[str]
    start: float

    def step(self) -> dict[str, Any]:
        self.stdin.write("step\n")
        self.stdin.flush()
        answer: dict[str, Any] = json.loads(self.stdout.readline())
        return answer


def run(settings: Settings) -> dict[str, Any]:
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(settings.ranks)]
    with ExitStack() as stack:
        sides = {
            "one process": stack.enter_context(_started([], settings)),
            "ranks": stack.enter_context(_started(launcher, settings)),
        }
        used: dict[str, list[float]] = {name: [] for name in sides}
        losses: dict[str, list[float]] = {name: [] for name in sides}

        def job(name: str, _: int) -> int:
            answer = sides[name].step()
            used[name].append(max(answer["processor"]))
            losses[name].append(answer["loss"])
            return settings.images

        jobs = {name: (lambda turn, name=name: job(name, turn)) for name in sides}
        deadline = time.monotonic() + settings.patience
        rates = interleaved(jobs, settings.rounds, on_round=lambda: _wait_for_rest(deadline))
    if losses["one process"] != losses["ranks"]:
        raise SystemExit("the sides did not take the same steps")
    one, many = (np.array(used[name][1:]) for name in sides)
    return {
        "images/s": {name: round(float(np.median(each)), 1) for name, each in rates.items()},
        "clock ratio": ratio(rates["ranks"], rates["one process"]),
        "processor ratio": interval_of_median(one / many),
        "processor seconds a step": {
            name: round(float(np.median(each)), 3)
            for name, each in (("one process", one), ("busiest rank", many))
        },
        "seconds to start": {name: round(side.start, 1) for name, side in sides.items()},
        "machine": machine.describe(1),
    }


def _wait_for_rest(deadline: float) -> None:
    """Until nobody else has wanted a core for a third of a second, or the patience is at its end."""
    while time.monotonic() < deadline:
        before = _idle()
        time.sleep(0.3)
        after = _idle()
        if (after[0] - before[0]) > 0.9 * (after[1] - before[1]):
            return


def _idle() -> tuple[int, int]:
    """Idle time and all time of all cores since the machine was started."""
    user, nice, system, idle, *others = map(int, Path("/proc/stat").read_text().split("\n")[0].split()[1:])
    return idle, user + nice + system + idle + sum(others)


@contextmanager
def _started(launcher: list[str], settings: Settings) -> Iterator[Side]:
    command = [sys.executable, *launcher, "-m", "benchmarks.torchrun", SERVE, json.dumps(asdict(settings))]
    started = time.monotonic()
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n", "it did not start"
        try:
            yield Side(process.stdin, process.stdout, time.monotonic() - started)
        finally:
            process.stdin.close()
            process.wait(60)


def serve(settings: Settings) -> None:
    """A step for every line that the first rank is given; it tells the loss and all ranks' processor time."""
    bench = networks.make(networks.named(settings.network), settings.heads, images=8 * settings.images)
    config = TrainConfig(
        sigma=0.5,
        epochs=10_000,  # never reached
        batch=settings.images,
        batch_unit="images",
        lr=1e-3,
        shards=settings.shards,
    )
    objective = ObjectiveConfig(method=Gaussian(draws=settings.draws))
    with ranks.joined("cpu"), threads(1):
        trainer = Trainer(bench.model, bench.images, config=config, objective=objective, augment=True)
        steps = (event for event in trainer.run() if isinstance(event, StepDone))
        if ranks.first():
            print("ready", flush=True)
        while ranks.from_first(sys.stdin.readline() if ranks.first() else ""):
            before = time.process_time()
            loss = next(steps).loss
            mine = torch.tensor([[time.process_time() - before]], dtype=torch.float64)
            answer = {"loss": loss, "processor": ranks.side_by_side(mine)[0].tolist()}
            if ranks.first():
                print(json.dumps(answer), flush=True)


def _shown(name: str, value: Any) -> str:
    if hasattr(value, "median"):
        return f"{name}: {value.median:.2f} [{value.low:.2f}, {value.high:.2f}]"
    return f"{name}: " + json.dumps(value)


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        serve(Settings(**json.loads(sys.argv[2])))
    else:
        print(*(_shown(*each) for each in run(tyro.cli(Settings)).items()), sep="\n")
