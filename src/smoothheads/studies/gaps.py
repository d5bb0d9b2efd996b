"""The paper's Figure 2: how far one image's noisy versions are from being misclassified, network by network.

One image proves little; the share of misclassified samples over all certified images follows from the ledgers
and is what the claim is answered by.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothheads.data import Dataset
from smoothheads.report.table import Table, number, word
from smoothheads.studies.jobs import network_folder
from smoothheads.studies.outcome import FACTS, load
from smoothheads.studies.plan import Row, StudyPlan
from smoothheads.studies.store import StudyStore

if TYPE_CHECKING:
    from matplotlib.figure import Figure

IMAGE_SEED = 0
"""Chooses the image among the certified ones."""
BINS = 40
Gaps = Mapping[str, Mapping[str, Any]]
"""By arm: edges and counts of the ensemble's gaps, share below 0, mean and deviation."""


def measure(plan: StudyPlan, store: StudyStore, draws: int) -> Gaps:
    """Of the first seed's networks, all on the same image and the same noise."""
    from smoothheads.studies.stages import certified_images

    return {
        row.arm: _of_network(
            network_folder(row.network, store),
            certified_images(row.network.data, plan.study.images),
            row.sigma,
            draws,
        )
        for row in _shown(plan)
        if store.facts(row.network) is not None
    }


def kept(plan: StudyPlan, folder: Path | None, draws: int) -> Gaps | None:
    """What `measure` gave for these very networks, if it is kept among the experiments in this folder."""
    if folder is None or not (folder / plan.study.name / FACTS).is_file():
        return None
    before = load(folder / plan.study.name)
    gaps: Gaps = before.extra.get("gaps", {})
    ledgers = {(each.arm, each.facts.get("ledger")) for each in before.results}
    same = all(
        (row.arm, row.certification.key) in ledgers and gaps.get(row.arm, {}).get("draws") == draws
        for row in _shown(plan)
    )
    return gaps if same else None


def _shown(plan: StudyPlan) -> list[Row]:
    first = plan.study.seeds[0], plan.study.sigmas[0]
    return [row for row in plan.rows if (row.seed, row.sigma) == first]


def _of_network(folder: Path, images: Dataset, sigma: float, draws: int) -> dict[str, Any]:
    from smoothheads.runs import diversity
    from smoothheads.runs.models import open_checkpoint
    from smoothheads.runs.sampling import Sampling

    checkpoint = open_checkpoint(folder)
    position = int(np.random.default_rng(IMAGE_SEED).integers(len(images)))
    gaps = diversity.margins(checkpoint, images, position, Sampling(sigma=sigma, index_samples=draws))
    edges, counts = gaps.rebinned(BINS)
    whole = gaps.to_dict()["curves"]["ensemble"]
    return {
        "draws": draws,
        "edges": [float(edge) for edge in edges],
        "counts": counts[0].tolist(),
        "below": 1 - whole["correct"],
        "mean": whole["mean"],
        "deviation": whole["std"],
        "image": int(images.indices[position]),
        "sigma": sigma,
    }


def table(gaps: Gaps) -> Table:
    rows = [
        (
            word(arm),
            number(each["below"], ".2f", 100),
            number(each["mean"], ".3f"),
            number(each["deviation"], ".3f"),
        )
        for arm, each in gaps.items()
    ]
    first = next(iter(gaps.values()))
    return Table(
        title=f"fig2: log-probability gaps of image {first['image']}, sigma {first['sigma']:g}, "
        f"{first['draws']} draws",
        columns=("network", "below 0 (%)", "mean", "deviation"),
        rows=tuple(rows),
        notes=("The same draws for all networks; the image is chosen by a fixed seed, not by its result.",),
    )


def figure(gaps: Gaps) -> Figure:
    from smoothheads.report import plots

    drawn, axes = plots.new_axes("log p of the label − largest log p of another class", "share of draws")
    for i, (arm, each) in enumerate(gaps.items()):
        colour, dash = plots.style(i)
        shares = np.array(each["counts"]) / each["draws"]
        axes.stairs(shares, each["edges"], color=colour, linestyle=dash, label=arm)
    axes.axvline(0, color="#222222", linestyle="--", linewidth=1)
    axes.legend(frameon=False)
    return drawn
