"""Figures of a study: every arm's ACR with a point per seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from smoothheads.report import plots
from smoothheads.studies.outcome import Outcome, Result
from smoothheads.studies.tables import gains, stacked


def write_figures(outcome: Outcome, folder: Path) -> list[Path]:
    written = write(acr(outcome), folder, "acr")
    return written + (write(gains_against_fit(outcome), folder, "gains") if outcome.several else [])


def gains_against_fit(outcome: Outcome) -> Figure:
    """What each arm gains on its baseline, against the baseline's training loss: the fitted end is left."""
    figure, axes = plots.new_axes("training loss of the baseline, last epoch", "gain in ACR")
    measured = list(gains(outcome))
    pairs = dict.fromkeys((this, baseline) for _, _, this, baseline, _ in measured)
    for i, pair in enumerate(pairs):
        points = []
        for setting, sigma, this, baseline, gain in measured:
            losses = [each.facts.get("loss") for each in outcome.of(setting, sigma, baseline).values()]
            known = [loss for loss in losses if loss is not None]
            if (this, baseline) == pair and known:
                points.append((float(np.mean(known)), gain.value, *gain.interval))
        if points:
            x, y, low, high = np.array(points).T
            colour, _ = plots.style(i)
            label = f"{outcome.arms[pair[0]]} − {outcome.arms[pair[1]]}"
            axes.errorbar(x, y, [y - low, high - y], fmt="o", color=colour, label=label, capsize=2)
    axes.axhline(0, color="#222222", linewidth=0.8)
    axes.legend(fontsize=8, frameon=False)
    return figure


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
