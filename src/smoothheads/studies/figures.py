"""Figures of a study: ACR and gains with intervals and a point for every seed, and ACR over a number."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from smoothheads.files import has_stamp
from smoothheads.report import plots
from smoothheads.studies.results import Stack, StudyResults
from smoothheads.studies.statistics import Gain, Verdict, gain, gains, paired_gain
from smoothheads.studies.tables import pair_title

BY_VERDICT: Final[Mapping[Verdict, str]] = {
    "confirmed": plots.COLOURS[0],
    "undecided": plots.GREY,
    "contradicted": plots.COLOURS[1],
}
MOST_PANELS: Final = 3


class Line(NamedTuple):
    """One number of a figure: its place, and its value with how sure it is."""

    panel: str
    heading: str
    label: str
    gain: Gain
    colour: str


def write_figures(study: StudyResults, folder: Path) -> list[Path]:
    """Writes the figures of ACR and gains into a folder."""
    figures = {"acr": acr_figure(study), "gains": gains_figure(study)}
    return [path for name, figure in figures.items() for path in write(figure, folder, name)]


def write(figure: Figure | None, folder: Path, name: str) -> list[Path]:
    """Writes a figure as PNG and SVG; without a figure, removes older files of ours, which no longer hold."""
    paths = [folder / f"{name}.{form}" for form in ("png", "svg")]
    for path in paths:
        if figure is not None:
            plots.save(figure, path)
        elif has_stamp(path):
            path.unlink()
    return [] if figure is None else paths


# A line per number


def acr_figure(study: StudyResults) -> Figure:
    """Draws the ACR of every arm, under its setting and sigma."""
    lines = []
    for setting, sigma in study.groups():
        for arm, title in study.arms.items():
            if stack := study.arm(setting, sigma, arm):
                acr = gain(stack.column())  # over a network that certifies nothing
                place = _place(study, setting, sigma, title)
                lines.append(Line(*place, acr, plots.COLOURS[0]))
    return draw_lines("average certified radius (ACR)", lines)


def gains_figure(study: StudyResults) -> Figure | None:
    """Draws what arms gain on their baselines; with several settings, over how well each was fitted. Returns
    None while nothing can be compared."""
    found = list(gains(study))
    if not found:
        return None
    if study.several_settings:
        return gains_over_loss(study)
    lines = []
    for setting, sigma, this, baseline, each in found:
        place = _place(study, setting, sigma, pair_title(study, this, baseline))
        lines.append(Line(*place, each, BY_VERDICT[each.verdict]))
    return draw_gains(lines)


def draw_gains(lines: Sequence[Line]) -> Figure:
    """Draws a line per gain, with a rule at 0."""
    figure = draw_lines("gain in ACR", lines)
    for axes in figure.axes:
        axes.axvline(0, color=plots.INK, linewidth=0.8)
    return figure


def draw_lines(x: str, lines: Sequence[Line]) -> Figure:
    """Draws a line per number: names at the left under their headings, and in every panel the mean with its
    95 % interval, with a point for every seed below. An open circle stands for one seed, whose interval is
    over images alone."""
    names = list(dict.fromkeys(line.panel for line in lines)) or [""]  # nothing yet: an empty figure
    figure, panels = plots.new_panels(len(names))
    # A heading has a row of its own. Lines without one come first: below a heading they would belong to it.
    labels: dict[str, dict[str, None]] = {"": {}}
    for line in lines:
        labels.setdefault(line.heading, {"": None})[line.label] = None
    rows = [(heading, label) for heading, below in labels.items() for label in below]
    # Every line: the interval, the mean on it, and the seeds a little below.
    for line in lines:
        axes, y, colour = panels[names.index(line.panel)], rows.index((line.heading, line.label)), line.colour
        seeds = line.gain.per_seed if line.gain.seeds is not None else ()
        axes.plot(line.gain.interval, [y, y], color=colour, linewidth=1.6, alpha=0.55)
        inside = colour if seeds else "white"
        axes.plot([line.gain.value], [y], "o", color=colour, markersize=5, markerfacecolor=inside)
        axes.plot(seeds, np.full(len(seeds), y + 0.3), ".", color=colour, markersize=3)
    # Titles of the panels, headings in bold, and a size that fits the rows.
    for axes, name in zip(panels, names, strict=True):
        axes.set_title(name, fontsize=9, fontweight="bold")
        axes.tick_params(axis="x", labelsize=8)
        axes.locator_params(axis="x", nbins=5 if len(panels) == 1 else 4)  # long names leave little room
    panels[0].set_yticks(range(len(rows)), [label or heading for heading, label in rows], fontsize=8)
    for text, (_, label) in zip(panels[0].get_yticklabels(), rows, strict=True):
        text.set_parse_math(False)
        text.set_fontweight("normal" if label else "bold")
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    one_seed = "" if all(line.gain.seeds is not None for line in lines) else "\n(open: one seed, over images)"
    figure.supxlabel(f"{x}; 95 % over seeds and images{one_seed}", fontsize=9)
    figure.set_size_inches(6.4, 0.9 + 0.22 * max(4, len(rows)) + 0.15 * bool(one_seed))
    return figure


def _place(study: StudyResults, setting: str, sigma: float, title: str) -> tuple[str, str, str]:
    """Returns panel, heading and label: sigmas in panels if they are few; the setting, and what stands before
    a colon ("Gaussian: SOME"), once as a heading."""
    front, colon, rest = title.partition(": ")
    at = f"sigma {sigma:g}"
    panels = len({row.sigma for row in study.rows}) <= MOST_PANELS
    heading = ", ".join(filter(None, (setting, "" if panels else at, front if colon else "")))
    return (at if panels else ""), heading, rest if colon else title


# ACR over a number


def gains_over_loss(study: StudyResults) -> Figure:
    """Draws what the arms gain on their common baseline, over its training loss: fitted settings are at the
    left. Pairs with other baselines are in the table alone."""
    found = list(gains(study))
    # The baseline of most pairs, and its training loss in every setting.
    pairs = Counter(baseline for _, _, _, baseline, _ in found)
    common = max(pairs, key=pairs.__getitem__, default="")
    known = {group: study.arm(*group, common).mean_fact("loss") for group in study.groups()}
    losses = {group: loss for group, loss in known.items() if loss is not None}
    measured = [
        (this, losses[setting, sigma], each)
        for setting, sigma, this, baseline, each in found
        if baseline == common and (setting, sigma) in losses
    ]
    # A column per setting, named at the bottom.
    name = study.arms.get(common, common)
    figure, axes = plots.new_axes(f"training loss of {name}, last epoch", "gain in ACR")
    axes.set_title(f"gain on {name}, 95 % over seeds and images", fontsize=9)
    axes.axhline(0, color=plots.INK, linewidth=0.8)
    for (setting, sigma), loss in losses.items():
        text = setting or f"sigma {sigma:g}"
        axes.annotate(
            text, (loss, 0.02), xycoords=("data", "axes fraction"), rotation=90, fontsize=7, ha="center"
        )
    if not measured:
        return figure
    # A series per arm, with the bars side by side.
    arms = list(dict.fromkeys(this for this, _, _ in measured))
    offset = 0.015 * (max(losses.values()) - min(losses.values()))
    for i, arm in enumerate(arms):
        points = [(loss, each.value, *each.interval) for this, loss, each in measured if this == arm]
        x, y, low, high = np.array(points).T
        look: dict[str, Any] = {"fmt": "o", "color": plots.style(i)[0], "markersize": 5, "capsize": 2}
        x = x + offset * (i - (len(arms) - 1) / 2)
        axes.errorbar(x, y, [y - low, high - y], label=study.arms[arm], **look)
    if largest := max(abs(each.value) for _, _, each in measured):
        axes.set_ylim(-2 * largest, 3 * largest)  # two seeds that differ have far longer intervals
    axes.legend(fontsize=8, frameon=False, loc="upper right", ncols=2)
    return figure


class CurvePoint(NamedTuple):
    """An arm at one place of a curve, and what it is compared with."""

    arm: Stack
    baseline: Stack
    """Empty where the arm is the baseline itself."""


def curves(
    x: str,
    series: Mapping[str, Mapping[float, CurvePoint]],
    baseline: str,
    levels: Sequence[float] = (),
    level: str = "",
) -> Figure:
    """Draws ACR over a number, one curve per name, with a point for every seed.

    The bars are intervals of the difference from the baseline. The ACR itself is far less sure: it differs
    more between images than between arms, which see the same images.

    Args:
        series: The points of every curve, by their place on the axis.
        baseline: What the baseline is called.
        levels: Heights of horizontal lines to compare with.
        level: What these lines are called.
    """
    figure, axes = plots.new_axes(x, "average certified radius")
    places = [at for points in series.values() for at in points]
    offset, several = 0.01 * (max(places) - min(places)), set[bool]()
    for i, (name, points) in enumerate(series.items()):
        colour, dash = plots.style(i)
        shift = offset * (i - (len(series) - 1) / 2)  # keeps bars of several curves apart
        # The mean over the seeds as a line, every seed as a point.
        per_seed = {at: points[at].arm.column().mean(1) for at in sorted(points)}
        means = [seeds.mean() for seeds in per_seed.values()]
        axes.plot([at + shift for at in per_seed], means, dash, color=colour, label=name)
        for at, seeds in per_seed.items():
            axes.plot(np.full(len(seeds), at + shift), seeds, ".", color=colour)
            # The interval of the difference, drawn around the mean of the arm.
            if (difference := paired_gain(*points[at])) is not None:
                low, high = difference.interval
                reach = [[difference.value - low], [high - difference.value]]
                look: dict[str, Any] = {"fmt": "none", "ecolor": colour, "capsize": 2, "alpha": 0.7}
                axes.errorbar([at + shift], [seeds.mean()], reach, **look)
                several.add(difference.seeds is not None)
    for i, height in enumerate(levels):
        axes.axhline(height, color=plots.GREY, linestyle="--", linewidth=1, label=level if i == 0 else None)
    over = "seeds and images" if True in several else "images (one seed)"
    mixed = "; one seed: over images" if len(several) == 2 else ""
    axes.set_title(f"bars: 95 % of the difference from {baseline}, over {over}{mixed}", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    return figure
