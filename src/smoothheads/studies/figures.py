"""Figures of a study: every arm's ACR with a point per seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from smoothheads.report import plots
from smoothheads.studies.outcome import Outcome, Result
from smoothheads.studies.tables import gains, stacked


def write_figures(outcome: Outcome, folder: Path) -> list[Path]:
    written = write(acr(outcome), folder, "acr")
    return written + (write(gains_against_fit(outcome), folder, "gains") if outcome.several else [])


def gains_against_fit(outcome: Outcome) -> Figure:
    """What the arms gain on their common baseline, against its training loss: the fitted end is left.
    Pairs with other baselines are in the table alone."""
    pairs = Counter(baseline for _, _, _, baseline, _ in gains(outcome))
    common = max(pairs, key=pairs.__getitem__, default="")
    known = {group: _loss(outcome, *group, common) for group in outcome.groups()}
    losses = {group: loss for group, loss in known.items() if loss is not None}
    measured = [
        (this, losses[setting, sigma], gain)
        for setting, sigma, this, baseline, gain in gains(outcome)
        if baseline == common and (setting, sigma) in losses
    ]
    name = outcome.arms.get(common, common)
    figure, axes = plots.new_axes(f"training loss of {name}, last epoch", "gain in ACR")
    axes.set_title(f"gain on {name}, 95 % over seeds and images", fontsize=9)
    axes.axhline(0, color="#222222", linewidth=0.8)
    for (setting, sigma), loss in losses.items():
        label = setting or f"sigma {sigma:g}"
        place = (loss, 0.02)
        axes.annotate(label, place, xycoords=("data", "axes fraction"), rotation=90, fontsize=7, ha="center")
    if not measured:
        return figure
    arms = list(dict.fromkeys(this for this, _, _ in measured))
    apart = 0.015 * (max(losses.values()) - min(losses.values()))
    for i, arm in enumerate(arms):
        points = [(loss, gain.value, *gain.interval) for this, loss, gain in measured if this == arm]
        x, y, low, high = np.array(points).T
        look: dict[str, Any] = {"fmt": "o", "color": plots.style(i)[0], "markersize": 5, "capsize": 2}
        x = x + apart * (i - (len(arms) - 1) / 2)
        axes.errorbar(x, y, [y - low, high - y], label=outcome.arms[arm], **look)
    if largest := max(abs(gain.value) for _, _, gain in measured):
        axes.set_ylim(-2 * largest, 3 * largest)  # two seeds that differ have far longer intervals
    axes.legend(fontsize=8, frameon=False, loc="upper right", ncols=2)
    return figure


def _loss(outcome: Outcome, setting: str, sigma: float, arm: str) -> float | None:
    """Of training, in the last epoch, over the seeds for which it is known."""
    losses = [result.facts.get("loss") for result in outcome.of(setting, sigma, arm).values()]
    known = [loss for loss in losses if loss is not None]
    return float(np.mean(known)) if known else None


def write(figure: Figure, folder: Path, name: str) -> list[Path]:
    paths = [folder / f"{name}.{form}" for form in ("png", "svg")]
    for path in paths:
        plots.save(figure, path)
    return paths


def curves(x: str, series: Mapping[str, Mapping[float, Sequence[Result]]]) -> Figure:
    """ACR against a number, one curve per name: the mean over seeds, and a point for every seed."""
    figure, axes = plots.new_axes(x, "average certified radius")
    for i, (name, points) in enumerate(series.items()):
        colour, dash = plots.style(i)
        found = {at: stacked(list(results)).mean(1) for at, results in sorted(points.items()) if results}
        axes.plot(list(found), [seeds.mean() for seeds in found.values()], dash, color=colour, label=name)
        for at, seeds in found.items():
            axes.plot(np.full(len(seeds), at), seeds, ".", color=colour)
    axes.legend(fontsize=8, frameon=False)
    return figure


def acr(outcome: Outcome) -> Figure:
    """ACR of the arms, one group per setting and sigma: bars of the mean, a point for every seed."""
    figure, axes = plots.new_axes("", "average certified radius")
    groups = outcome.groups()
    width = 0.8 / len(outcome.arms)
    for i, arm in enumerate(outcome.arms):
        colour, _ = plots.style(i)
        for g, (setting, sigma) in enumerate(groups):
            results = list(outcome.of(setting, sigma, arm).values())
            if results:
                seeds = stacked(results).mean(1)
                x = g + (i - (len(outcome.arms) - 1) / 2) * width
                axes.bar(
                    x,
                    seeds.mean(),
                    width * 0.9,
                    color=colour,
                    alpha=0.35,
                    label=outcome.arms[arm] if g == 0 else None,
                )
                axes.plot(np.full(len(seeds), x), seeds, ".", color=colour)
    names = [f"{setting}\n" * bool(setting) + f"sigma {sigma:g}" for setting, sigma in groups]
    axes.set_xticks(range(len(groups)), names, fontsize=8, rotation=30 if len(groups) > 4 else 0)
    axes.legend(fontsize=8, frameon=False)
    return figure
