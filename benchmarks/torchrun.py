"""How much faster two ranks of torchrun train than one process that computes the same micro-batches.

    python -m benchmarks.torchrun

One process and the ranks are started once and take turns: a step each, round by round, while the other side
waits. The ratio by the clock is what a user sees; the processor time of a step in one process against that of
the busiest rank is what other work on the machine disturbs less.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from time import process_time
from typing import Any

import numpy as np
import torch
import tyro
from benchmarks.contenders import fresh
from benchmarks.timing import describe_machine, interleaved, ratio

from smoothheads import ranks
from smoothheads.device import threads
from smoothheads.objectives import Gaussian, ObjectiveConfig
from smoothheads.results.metrics import interval_of_median
from smoothheads.training import TrainConfig
from smoothheads.training.loop import StepDone, Trainer

SERVE = "serve"
Step = dict[str, Any]


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


def run(settings: Settings) -> dict[str, Any]:
    """Measures both sides in turns; they must take the same steps."""
    launcher = ["-m", "torch.distributed.run", "--nproc-per-node", str(settings.ranks)]
    with ExitStack() as stack:
        sides = {
            "one process": stack.enter_context(_started([], settings)),
            "ranks": stack.enter_context(_started(launcher, settings)),
        }
        steps: dict[str, list[Step]] = {name: [] for name in sides}

        def job(name: str) -> int:
            process = sides[name]
            assert process.stdin
            assert process.stdout
            process.stdin.write("step\n")
            process.stdin.flush()
            steps[name].append(json.loads(process.stdout.readline()))
            return settings.images

        jobs = {name: (lambda _, name=name: job(name)) for name in sides}
        rates = interleaved(jobs, settings.rounds)
    one, many = steps.values()
    if [step["loss"] for step in one] != [step["loss"] for step in many]:
        raise SystemExit("The two sides did not take the same steps.")
    # The first round warms up and does not count.
    busiest = [np.array([max(step["processor"]) for step in side[1:]]) for side in (one, many)]
    return {
        "images/s": {name: round(float(np.median(each)), 1) for name, each in rates.items()},
        "ratio by the clock": ratio(rates["ranks"], rates["one process"]),
        "ratio by processor time": interval_of_median(busiest[0] / busiest[1]),
        "processor seconds a step": [round(float(np.median(each)), 3) for each in busiest],
        "machine": describe_machine(1),
    }


@contextmanager
def _started(launcher: list[str], settings: Settings) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, *launcher, "-m", "benchmarks.torchrun", SERVE, json.dumps(asdict(settings))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n", "it did not start"
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(60)


def serve(settings: Settings) -> None:
    """Takes a step for every line on stdin of the first rank, and prints loss and processor times."""
    bench = fresh(settings.network, settings.heads, images=8 * settings.images)
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
            before = process_time()
            loss = next(steps).loss
            own = torch.tensor([[process_time() - before]], dtype=torch.float64)
            step = {"loss": loss, "processor": ranks.side_by_side(own)[0].tolist()}
            if ranks.first():
                print(json.dumps(step), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == [SERVE]:
        serve(Settings(**json.loads(sys.argv[2])))
    else:
        for name, value in run(tyro.cli(Settings, description=__doc__)).items():
            print(f"{name}: {value}")
