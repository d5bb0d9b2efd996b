"""Makes the chart, the table and the picture of the README.

python -m benchmarks.readme chart benchmarks/paper/main --arms gaussian-single gaussian-dnn5 gaussian-some \
    --labels "single network" "five networks" "SOME, five heads" --costs 1 5 1.7
python -m benchmarks.readme table benchmarks/paper/main \
    --arms gaussian-single gaussian-heads gaussian-dnn5 gaussian-some
python -m benchmarks.readme picture zoo:cifar10-some-0.5 --root CIFAR10 --index 7

Several folders are the sigmas of one study, such as benchmarks/cifar10/gaussian-0.25 and gaussian-0.5.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("agg")
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Circle

from smoothheads.data import load_test
from smoothheads.runs.models import open_model
from smoothheads.smoothed import Smoothed
from smoothheads.studies.results import Stack, load
from smoothheads.types import Phase, Pixels, format_radius

IMAGES = Path("docs/images")
COLOURS = ("#9aa5b1", "#5b8db8", "#d1495b", "#e9a03b", "#4c956c")
GREY = "#5c6773"
Cells = dict[tuple[str, float], Stack]


def read(folders: Sequence[Path], arms: Sequence[str]) -> Cells:
    """Returns the rows of these arms in the folders of studies, by arm and sigma."""
    found: Cells = {}
    for row in (row for folder in folders for row in load(folder).rows if row.arm in arms):
        seeds = found.setdefault((row.arm, row.sigma), Stack()).by_seed
        found[row.arm, row.sigma] = Stack({**seeds, row.seed: row})
    if missing := [arm for arm in arms if arm not in {arm for arm, _ in found}]:
        raise SystemExit(f"There is no arm {missing[0]!r} in {', '.join(map(str, folders))}.")
    return found


def table(folders: Sequence[Path], arms: Sequence[str]) -> list[str]:
    """Returns the rows of the README's table: the ACR per sigma, and the classes with a certificate.

    Args:
        folders: The folders with the rows of a study.
        arms: The columns.
    """
    cells = read(folders, arms)
    sigmas = sorted({sigma for _, sigma in cells})
    lines = []
    for sigma in sigmas:
        values = [f"{cells[arm, sigma].acr.value:.3f}" for arm in arms]
        lines.append(f"| {sigma:g}: average certified radius | {' | '.join(values)} |")
    counts = [" / ".join(f"{classes(cells[arm, sigma])}" for sigma in sigmas) for arm in arms]
    name = "classes with a certificate at " + " / ".join(f"{sigma:g}" for sigma in sigmas)
    return [*lines, f"| {name} | {' | '.join(counts)} |"]


def classes(stack: Stack) -> int:
    """Returns the mean over seeds of the number of classes with a certificate, rounded down."""
    return math.floor(np.mean([each.certified_classes for each in stack.results]))


def chart(
    folders: Sequence[Path], arms: Sequence[str], labels: Sequence[str], costs: Sequence[float]
) -> Figure:
    """Draws the ACR of every arm at every sigma, with the cost of a certificate below.

    Args:
        folders: The folders with the rows of a study.
        arms: One bar each.
        labels: Their names.
        costs: Their costs relative to the first.
    """
    cells = read(folders, arms)
    sigmas = sorted({sigma for _, sigma in cells})
    figure, axes = plt.subplots(figsize=(6.4, 3.4), layout="constrained")
    width, places, names = 0.27, [], []
    for k, (arm, label, cost) in enumerate(zip(arms, labels, costs, strict=True)):
        left = [i + width * (k - (len(arms) - 1) / 2) for i in range(len(sigmas))]
        acr = [cells[arm, sigma].acr for sigma in sigmas]
        errors = [2 * each.standard_error for each in acr]
        bars = axes.bar(
            left,
            [each.value for each in acr],
            0.9 * width,
            yerr=errors,
            capsize=3,
            color=COLOURS[k],
            label=label,
        )
        axes.bar_label(bars, fmt="%.3f", padding=2, fontsize=9)
        places += left
        names += [f"cost {cost:g}x"] * len(left)
    axes.set_xticks(places, names, fontsize=8, color=GREY)
    axes.tick_params(axis="x", length=0)
    below = axes.secondary_xaxis(-0.1)
    below.set_xticks(range(len(sigmas)), [f"noise sigma = {sigma:g}" for sigma in sigmas])
    below.tick_params(length=0)
    below.spines[:].set_visible(False)
    axes.set_ylabel("average certified radius")
    axes.set_ylim(0, 1.25 * axes.get_ylim()[1])
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=9, loc="upper left", ncols=len(arms))
    return figure


def picture(smoothed: Smoothed, image: Pixels, index: int) -> Figure:
    """Draws one certificate: the image, two of its noisy copies, the votes, and the radius.

    Args:
        smoothed: The smoothed classifier.
        image: Grid integers [channels, height, width].
        index: The index that keys its noise.
    """
    certifier, names = smoothed.certifier, smoothed.info.class_names
    certified = smoothed.certify_image(image, index)
    if certified.prediction < 0:
        raise SystemExit(f"The classifier abstains on image {index}; choose another --index.")
    # The first two samples that the bound is computed from, and what the base classifier makes of them.
    copies = certifier.noise.noisy(image, index, Phase.ESTIMATION, 0)[:2]
    counts = certified.votes.for_aggregation(smoothed.config.aggregation)

    figure = plt.figure(figsize=(9.6, 2.05), layout="constrained")
    widths = [1, 0.36, 1, 1, 0.1, 1.1, 0.05, 1]
    axes = figure.subplots(1, len(widths), width_ratios=widths)
    for axis in axes:
        axis.axis("off")
        axis.set_anchor("N")
    show(axes[0], image / smoothed.info.grid.max_value, "image")
    axes[1].text(0.5, 0.5, f"+ noise\n{certified.votes.n:,} times", ha="center", fontsize=8, color=GREY)
    show(axes[2], copies[0], "noisy copy")
    show(axes[3], copies[1], "noisy copy")
    votes(axes[5], counts, names)
    ball(axes[7], certified.radius, names[certified.prediction])
    return figure


def show(axis: Any, pixels: Any, title: str) -> None:
    """Draws pixels [channels, height, width], clipped to [0, 1] for the eye only."""
    shown = np.clip(np.asarray(pixels, dtype=np.float64), 0, 1).transpose(1, 2, 0)
    shown = np.repeat(shown, 3 // shown.shape[2], axis=2)
    axis.imshow(shown, interpolation="nearest")
    axis.set_title(title, fontsize=10)


def votes(axis: Any, counts: Any, names: Sequence[str], most: int = 4) -> None:
    """Draws the classes with the most votes as bars."""
    order = np.argsort(-counts, kind="stable")[:most]
    fractions = counts[order] / counts.sum()
    axis.barh(range(len(order)), fractions, 0.32, color=[COLOURS[2], *[COLOURS[0]] * (len(order) - 1)])
    for i, (label, fraction) in enumerate(zip(order, fractions, strict=True)):
        text = f"{names[label]}  {math.floor(1000 * fraction) / 10:.1f} %"
        axis.text(0, i - 0.22, text, fontsize=9, va="bottom")
    axis.set_ylim(len(order) - 0.6, -0.9)
    axis.set_xlim(0, 1)
    axis.set_title("votes of the network", fontsize=10)


def ball(axis: Any, radius: float, name: str) -> None:
    """Draws the certified ball around the image, and says what holds in it."""
    axis.set_aspect("equal")
    axis.set_xlim(-1.4, 1.4)
    axis.set_ylim(-1.75, 1.05)
    axis.add_patch(Circle((0, 0), 1, facecolor=COLOURS[2] + "30", edgecolor=COLOURS[2], linewidth=1.5))
    axis.plot([0, 0.8], [0, 0.6], color=COLOURS[2], linewidth=1.5)
    axis.plot(0, 0, "o", color=COLOURS[2], markersize=5)
    axis.text(0, -0.42, f"R = {format_radius(radius, 3)}", ha="center", va="center", fontsize=10)
    axis.text(
        0, -1.4, f"every image in here\nis classified as “{name}”", ha="center", va="center", fontsize=8
    )
    axis.set_title("certificate", fontsize=10)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("chart", "table"):
        command = commands.add_parser(name)
        command.add_argument("folders", type=Path, nargs="+", help="folders with the rows of a study")
        command.add_argument("--arms", nargs="+", required=True)
        if name == "chart":
            command.add_argument("--labels", nargs="+", help="names of the arms")
            command.add_argument(
                "--costs", type=float, nargs="+", required=True, help="relative to the first arm"
            )
            command.add_argument("--out", type=Path, default=IMAGES / "acr.svg")
    command = commands.add_parser("picture")
    command.add_argument("network", help="a checkpoint, a run, an export or zoo:NAME")
    command.add_argument("--root", help="where the data set lies, if not where it lay in training")
    command.add_argument("--index", type=int, default=0, help="which test image")
    command.add_argument("--n", type=int, default=10_000)
    command.add_argument("--out", type=Path, default=IMAGES / "certificate.png")
    options = parser.parse_args(arguments)
    if options.command == "table":
        print("\n".join(table(options.folders, options.arms)))
        return
    mpl.rcParams["svg.hashsalt"] = "readme"  # the same file from the same numbers
    if options.command == "chart":
        figure = chart(options.folders, options.arms, options.labels or options.arms, options.costs)
        figure.savefig(options.out, metadata={"Date": None})
        return
    model = open_model(options.network)
    data = replace(model.data, root=options.root) if options.root else model.data
    image = load_test(data).image(options.index)
    figure = picture(model.smoothed(n=options.n, seed=0), image, options.index)
    figure.savefig(options.out, dpi=200, facecolor="white")


if __name__ == "__main__":
    main()
