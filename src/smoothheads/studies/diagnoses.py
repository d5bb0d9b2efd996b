"""Two diagnoses of the paper: log-probability gaps of an image (Figure 2) and lambda in training (Fig. 7)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from smoothheads.objectives import TeachingConfig
from smoothheads.report.table import Table, number, word
from smoothheads.studies.plan import PlannedRow, StudyPlan
from smoothheads.studies.results import STUDY_FILE, GapCurve, StudyResults, load
from smoothheads.studies.store import StudyStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGE_SEED = 0
"""Chooses the image of Figure 2 among the certified ones."""
BINS = 40
LAMBDA_LAST = (1.2, 1.0, 0.8, 1.6)
EPOCHS_SHOWN = (1, 2, 10, 25, 50, 100, 150)


# Figure 2. One image proves little: the claim is answered by the fraction of misclassified samples over all
# certified images, which follows from the ledgers.


def shown_rows(plan: StudyPlan) -> list[PlannedRow]:
    """Returns the rows of the first seed and sigma, whose networks are drawn."""
    first = plan.study.seeds[0], plan.study.sigmas[0]
    return [row for row in plan.rows if (row.seed, row.sigma) == first]


def measure_gaps(plan: StudyPlan, store: StudyStore, draws: int) -> dict[str, GapCurve]:
    """Returns the gaps of all networks on the same image and the same noise, by arm.

    Args:
        plan: The plan of fig2.
        store: Where its networks are.
        draws: The number of noise draws.
    """
    from smoothheads.runs import diversity
    from smoothheads.runs.models import open_checkpoint
    from smoothheads.runs.sampling import Sampling
    from smoothheads.studies.jobs import certified_images

    rows = [row for row in shown_rows(plan) if store.facts(row.network) is not None]
    study = store.collect(replace(plan, rows=tuple(rows)))
    # Draw the image among those that every network certifies correctly: of an image that is lost without
    # noise the gaps show nothing.
    certified = [row.log.correct for row in study.certified]
    positions = np.flatnonzero(np.logical_and.reduce(certified)) if certified else np.array([], int)
    positions = positions if len(positions) else np.arange(plan.images)
    position = int(np.random.default_rng(IMAGE_SEED).choice(positions))

    # Measure the gaps of every network under the same draws, and keep their histogram.
    curves = {}
    for row in rows:
        images = certified_images(row.network.data, plan.study.images)
        checkpoint = open_checkpoint(store.checkpoint(row.network))
        sampling = Sampling(sigma=row.sigma, index_samples=draws)
        gaps = diversity.margins(checkpoint, images, position, sampling)
        edges, counts = gaps.histogram(BINS)
        curve = gaps.to_dict()["curves"]["ensemble"]
        curves[row.arm] = GapCurve(
            image=int(images.indices[position]),
            sigma=row.sigma,
            draws=draws,
            edges=tuple(float(edge) for edge in edges),
            counts=tuple(counts[0].tolist()),
            below=1 - curve["correct"],
            mean=curve["mean"],
            deviation=curve["std"],
            weights=str((store.facts(row.network) or {}).get("weights", "")),
        )
    return curves


def saved_gaps(plan: StudyPlan, folder: Path, draws: int) -> dict[str, GapCurve]:
    """Returns what `measure_gaps` gave for these very networks, if the folder of the study has it."""
    if not (folder / STUDY_FILE).is_file():
        return {}
    # The curves are those of the plan if they have its arms, draws and certified networks.
    before = load(folder)
    certifications = {(row.arm, row.facts.certification) for row in before.rows}
    same = all(
        (row.arm, row.certification.key) in certifications
        and row.arm in before.gaps
        and before.gaps[row.arm].draws == draws
        for row in shown_rows(plan)
    )
    return before.gaps if same else {}


def gap_table(study: StudyResults) -> Table:
    """Returns what the figure shows, in numbers."""
    gaps = study.gaps
    certified = {weights for row in study.certified for weights in row.facts.weights}
    again = [arm for arm, each in gaps.items() if each.weights and each.weights not in certified]
    trained = f"Drawn on networks that were trained again with the same settings: {', '.join(again)}."
    rows = [
        (word(arm), number(each.below, ".2f", 100), number(each.mean, ".3f"), number(each.deviation, ".3f"))
        for arm, each in gaps.items()
    ]
    first = next(iter(gaps.values()))
    return Table(
        title=f"fig2: log-probability gaps of image {first.image}, "
        f"sigma {first.sigma:g}, {first.draws} draws",
        columns=("network", "below 0 (%)", "mean", "deviation"),
        rows=tuple(rows),
        notes=(
            "The same draws for all networks. The image is drawn by a fixed seed among those that all of "
            "them certify correctly.",
            *([trained] if again else []),
        ),
    )


def gap_figure(gaps: Mapping[str, GapCurve]) -> Figure:
    """Draws the histograms of the gaps."""
    from smoothheads.report import plots

    figure, axes = plots.new_axes("log p of the label − largest log p of another class", "share of draws")
    for i, (arm, each) in enumerate(gaps.items()):
        colour, dash = plots.style(i)
        axes.stairs(np.array(each.counts) / each.draws, each.edges, color=colour, linestyle=dash, label=arm)
    axes.axvline(0, color="#222222", linestyle="--", linewidth=1)
    axes.legend(frameon=False)
    return figure


# Figure 7, which needs no training


def lambda_curve(last: float, *, classes: int = 10, epochs: int = 150) -> list[float]:
    """Returns lambda of every epoch t = 1 to T: -log10(a t + b), which falls from ln C to lambda_last."""
    from smoothheads.objectives.pace import scheduled_lambda  # imports torch

    config = TeachingConfig(lambda_last=last)
    return [scheduled_lambda(config, epoch=t, epochs=epochs, classes=classes) for t in range(1, epochs + 1)]


def lambda_table() -> Table:
    """Returns the values of the paper's four schedules on CIFAR-10."""
    rows = [
        (number(last, "g"), *(number(lambda_curve(last)[t - 1], ".6f") for t in EPOCHS_SHOWN))
        for last in LAMBDA_LAST
    ]
    return Table(
        title="fig7: lambda against the epoch, -log10(a t + b) from ln 10 over 150 epochs",
        columns=("lambda_last", *(f"t = {t}" for t in EPOCHS_SHOWN)),
        rows=tuple(rows),
    )


def lambda_figure() -> Figure:
    """Draws the paper's four schedules."""
    from smoothheads.report import plots

    figure, axes = plots.new_axes("epoch", "lambda")
    for i, last in enumerate(LAMBDA_LAST):
        colour, dash = plots.style(i)
        axes.plot(range(1, 151), lambda_curve(last), dash, color=colour, label=f"lambda_last {last:g}")
    axes.legend(frameon=False)
    return figure
