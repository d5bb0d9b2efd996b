"""Peak memory of a training step and of certification at the paper's size, beside the published Table 8.

python -m benchmarks.memory

Every number is the peak of a fresh process (VmHWM of Linux), so it includes Python and torch. The published
numbers are those of a GPU, which also holds the driver's context. Training takes one step with a batch of 256
draws; certification takes two blocks of 100 samples. Separate networks are trained one after another, so one
counts.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

import torch
from benchmarks.timing import build_network, random_images

import smoothheads as sh
from smoothheads.models import ModelConfig
from smoothheads.recipes.setups import get
from smoothheads.training import RunConfig
from smoothheads.training.loop import StepDone, Trainer

SHAPE: Final = (3, 32, 32)


class Arm(NamedTuple):
    """A row of Table 8 at sigma 1."""

    recipe: str
    method: str
    separate: int
    """How many networks are trained one after another and certified together."""
    train_mib: str
    """As published."""
    certify_mib: str


ARMS: Final = {
    "10 networks, Consistency": Arm("cifar10-resnet110", "consistency", 10, "4,197 each", "2,469"),
    "10 networks, SmoothAdv": Arm("cifar10-resnet110", "smoothadv", 10, "4,219 each", "2,469"),
    "3 networks, DRT": Arm("cifar10-resnet110-joint", "drt", 1, "21,143", "22,805"),
    "SOME, SmoothMix": Arm("cifar10-resnet110-some", "smoothmix", 1, "9,267", "2,407"),
}


def settings(arm: Arm, draws: int) -> RunConfig:
    heads = {"heads": 3} if arm.method == "drt" else {}
    config = get(arm.recipe, sigma=1.0, method=arm.method, **heads)
    return config.with_overrides({"train.precision": "float32", "train.batch": draws})


def train(arm: Arm, draws: int) -> None:
    """Takes one step of the training."""
    config = settings(arm, draws)
    data = random_images(SHAPE, config.train.batch)
    model = build_network(config.model, SHAPE)
    trainer = Trainer(model, data, config=config.train, objective=config.objective, augment=True)
    next(event for event in trainer.run() if isinstance(event, StepDone))


def certify(arm: Arm, draws: int) -> None:
    """Certifies one image with one block that chooses the class and one for the bound."""
    model = settings(arm, draws).model
    # Networks that are trained apart vote like heads that share nothing.
    if arm.separate > 1:
        model = ModelConfig(arch=model.arch, heads=arm.separate, cut="input")
    smoothed = sh.Smoothed(
        build_network(model, SHAPE).eval(), sigma=1.0, n0=100, n=100, shape=SHAPE, classes=10, recheck=0.0
    )
    smoothed.certify_image(random_images(SHAPE, 1).image(0))


def peak_mib(name: str, stage: str, draws: int) -> str:
    """Returns the largest memory of a process that runs one stage of one arm, as a cell of the table."""
    command = [sys.executable, "-m", "benchmarks.memory", "--arm", name, "--stage", stage]
    done = subprocess.run([*command, "--draws", str(draws)], check=False, stdout=subprocess.PIPE, text=True)
    # Linux kills the process that asks for more memory than there is.
    return "does not fit" if done.returncode == -signal.SIGKILL else f"{float(done.stdout):,.0f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arm", choices=ARMS, help=argparse.SUPPRESS)
    parser.add_argument("--stage", choices=("train", "certify"), help=argparse.SUPPRESS)
    parser.add_argument("--only", nargs="+", choices=ARMS, help="rows of the table (default: all)")
    parser.add_argument("--draws", type=int, default=256, help="size of a training batch")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.arm:
        {"train": train, "certify": certify}[options.stage](ARMS[options.arm], options.draws)
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found, "This system does not tell the peak memory of a process."
        print(int(found[1]) / 2**10)
        return
    print("| peak MiB | training, here | published | certification, here | published |\n" + "|---" * 5 + "|")
    for name in options.only or ARMS:
        arm, here = ARMS[name], [peak_mib(name, stage, options.draws) for stage in ("train", "certify")]
        print(f"| {name} | {here[0]} | {arm.train_mib} | {here[1]} | {arm.certify_mib} |", flush=True)


if __name__ == "__main__":
    main()
