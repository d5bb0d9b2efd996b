"""The paper's Figure 2: log-probability gaps of one image under noise.

One image proves little: the claim is answered by the fraction of misclassified samples over all certified
images, which follows from the ledgers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from smoothheads.report.table import Table, number, word
from smoothheads.studies.plan import RowName, StudyPlan
from smoothheads.studies.results import GapCurve, StudyResults, StudyRow
from smoothheads.studies.store import StudyStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Row = TypeVar("Row", bound=RowName)
IMAGE_SEED = 0
"""Chooses the image among the certified ones."""
BINS = 40


def shown_rows(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows of the first seed and sigma, whose networks are drawn."""
    return [row for row in rows if (row.seed, row.sigma) == (rows[0].seed, rows[0].sigma)]


def is_measured(gaps: Mapping[str, GapCurve], rows: Sequence[StudyRow], draws: int) -> bool:
    """Returns whether there are gaps of the very networks of these rows, with so many draws."""
    return bool(rows) and all(
        row.arm in gaps and gaps[row.arm].draws == draws and gaps[row.arm].weights in row.facts.weights
        for row in rows
    )


def measure_gaps(plan: StudyPlan, store: StudyStore, draws: int) -> dict[str, GapCurve]:
    """Returns the gaps of all networks in the store on the same image and the same noise, by arm."""
    from smoothheads.runs import diversity
    from smoothheads.runs.models import open_checkpoint
    from smoothheads.runs.sampling import Sampling
    from smoothheads.studies.jobs import certified_images

    rows = [row for row in shown_rows(plan.rows) if store.facts(row.network) is not None]
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
