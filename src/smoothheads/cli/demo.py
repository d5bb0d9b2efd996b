"""smoothheads demo"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from smoothheads import recipes
from smoothheads.certify.config import CertifyConfig
from smoothheads.cli.common import parse, say
from smoothheads.cli.progress import Progress
from smoothheads.cli.report import show
from smoothheads.data import SubsetConfig, named
from smoothheads.files import reserve

if TYPE_CHECKING:
    from smoothheads.report.html import Gallery
    from smoothheads.results.results import Results

DESCRIPTION = """Train a 5-head SOME network and its single-network control on the embedded digits, certify
both on the same test images, and compare them. Run it again and it uses what is there."""

CAPTION = (
    "From the left: the image; a noisy sample, as the network sees it; a random change of 99.9 % of the "
    "radius, which cannot alter the answer."
)
MEANING = """Digits are too easy to tell the two apart. On CIFAR-10 (small networks, three seeds) SOME with
Gaussian training gained as much as five separate networks at sigma 0.25 and three times as much at 0.5,
where it gave up one class; with Consistency it gained nothing that is sure. At the paper's size its
certificates cost a third of theirs: docs/paper.md has the measurements."""
NAMES = ("digits-single", "digits-some")


@dataclass(frozen=True, kw_only=True)
class DemoArguments:
    out: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("demo")
    """Where networks, ledgers and the report go."""
    first: int = 100
    """Certify so many of the first test images."""
    n: int = 2_000
    """Samples per image."""
    json: bool = False
    """Print the tables as JSON."""
    epochs: int | None = None
    """Epochs of training, for a quicker and worse demo (default: those of the recipes)."""


def main(arguments: list[str]) -> None:
    args = parse(DemoArguments(), arguments, prog="demo", description=DESCRIPTION)
    reserve(args.out, lambda there: (there / NAMES[0]).is_dir())
    say("A certificate: for this image, no change of l2 norm below the radius alters the answer.\n")
    ledgers = [_train_and_certify(name, args) for name in NAMES]
    comparison = show(ledgers, as_json=args.json)
    gallery = _gallery(comparison.logs[-1])
    from smoothheads.report.html import write

    page, *plots = write(comparison, args.out, "SOME against a single network, on digits", gallery)
    say(f"\nOpen {page} for the whole story; the curves are in {plots[0]}.\n{MEANING}")


def _train_and_certify(name: str, args: DemoArguments) -> Path:
    from smoothheads.runs.certify import certification_images, certify_run
    from smoothheads.runs.models import open_checkpoint
    from smoothheads.runs.train import train_run
    from smoothheads.training.loop import EpochDone, StepDone

    config = recipes.get(name)
    if args.epochs is not None:
        config = replace(config, train=replace(config.train, epochs=args.epochs))
    with Progress(f"train {name}") as bar:

        def on_event(event: StepDone | EpochDone) -> None:
            if isinstance(event, StepDone):
                bar.update(event.step, f"epoch {event.epoch}, loss {event.loss:.2f}")

        folder = train_run(
            config,
            args.out / name,
            resume=True,
            on_plan=lambda plan: bar.begin(plan.steps, plan.done),
            on_event=on_event,
        )
    checkpoint = open_checkpoint(folder)
    dataset = certification_images(checkpoint, config.data, SubsetConfig(first=args.first))
    settings = CertifyConfig(sigma=config.train.sigma, n=args.n)
    out = args.out / f"{name.removeprefix('digits-')}"
    samples = settings.plan.typical_samples
    with Progress(f"certify {name}") as bar:
        certify_run(
            checkpoint,
            dataset,
            settings,
            out,
            on_start=lambda done: bar.begin(len(dataset) * samples, done * samples),
            on_votes=bar.add,
        )
    return out


def _gallery(log: Results) -> Gallery:
    """The test images at the quartiles of the certified radii."""
    from smoothheads.data import load_test
    from smoothheads.report.html import triptych

    test = load_test(named("digits"))
    order = sorted((row for row in log.rows if row.correct), key=lambda row: row.radius)
    chosen = [order[round(share * (len(order) - 1))] for share in (0, 0.25, 0.5, 0.75, 1)] if order else []
    return [
        (
            triptych(
                test.image(row.index),
                test.info.grid,
                sigma=log.sigma or 0.0,
                radius=0.999 * row.radius,
                seed=row.index,
            ),
            f"Test image {row.index}, a {row.label}: {log.name} answers {row.prediction}, certified to l2 "
            f"radius {row.radius:.3f}. {CAPTION}",
        )
        for row in chosen
    ]
