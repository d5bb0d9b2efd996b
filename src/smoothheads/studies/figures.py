"""Figures of a study: ACR and gains with their intervals and a point for every seed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from smoothheads.files import has_stamp
from smoothheads.report import plots
from smoothheads.results.metrics import Interval
from smoothheads.studies import claims
from smoothheads.studies.outcome import Outcome, Result
from smoothheads.studies.statistics import Verdict, gain
from smoothheads.studies.tables import gains, pair_title, paired_gain, stacked

_GREY: Final = "#767676"
_BY_VERDICT: Final[Mapping[Verdict, str]] = {
    "confirmed": plots.COLOURS[0],
    "undecided": _GREY,
    "contradicted": plots.COLOURS[1],
}


MOST_PANELS: Final = 3


def write_figures(outcome: Outcome, folder: Path) -> list[Path]:
    drawn = {"acr": acr(outcome), "gains": gains_figure(outcome)}
    return [path for name, each in drawn.items() for path in write(each, folder, name)]


def gains_figure(outcome: Outcome) -> Figure | None:
    """What arms gain on their baselines; with several settings, against how well each was fitted. None where
    nothing can be compared yet."""
    found = list(gains(outcome))
    if not found:
        return None
    if outcome.several:
        return gains_against_fit(outcome)
    lines = [
        _Line(
            *_place(outcome, setting, sigma, pair_title(outcome, this, baseline)),
            each.value,
            each.interval,
            each.per_seed,
            _BY_VERDICT[each.verdict],
        )
        for setting, sigma, this, baseline, each in found
    ]
    return _gains_line_by_line(lines)


def claims_figure(outcomes: Mapping[str, Outcome]) -> Figure | None:
    """Every comparison of ACR that a claim of the paper rests on; none where nothing was measured."""
    lines = [
        _Line(
            "",
            claim.where,
            f"{claim.id} {item.what}",
            item.value,
            item.interval,
            item.per_seed,
            _BY_VERDICT[item.verdict],
        )
        for claim in sorted(claims.all_claims().values(), key=lambda claim: claim.where)
        if claim.of == "certified_radius" and claim.where in outcomes
        for item in claims.answers(claim, outcomes[claim.where], {})
    ]
    return _gains_line_by_line(lines) if lines else None


def _gains_line_by_line(lines: Sequence[_Line]) -> Figure:
    figure = _line_by_line("gain in ACR", lines)
    for axes in figure.axes:
        axes.axvline(0, color="#222222", linewidth=0.8)
    return figure


def acr(outcome: Outcome) -> Figure:
    """Of every arm, under its setting and sigma."""
    lines = []
    for setting, sigma in outcome.groups():
        for arm, label in outcome.arms.items():
            if results := list(outcome.of(setting, sigma, arm).values()):
                radii = stacked(results)
                whole = gain(radii, np.zeros_like(radii))  # on a network that certifies nothing
                place = _place(outcome, setting, sigma, label)
                lines.append(_Line(*place, whole.value, whole.interval, whole.per_seed, plots.COLOURS[0]))
    return _line_by_line("average certified radius (ACR)", lines)


class _Line(NamedTuple):
    panel: str
    heading: str
    label: str
    value: float
    interval: Interval
    per_seed: tuple[float, ...]
    colour: str


def _place(outcome: Outcome, setting: str, sigma: float, label: str) -> tuple[str, str, str]:
    """Panel, heading and label: sigmas side by side where that leaves room for them; setting, and what stands
    before a colon ("Gaussian: SOME"), once above all that have it."""
    front, colon, rest = label.partition(": ")
    at = f"sigma {sigma:g}"
    beside = len({each.sigma for each in outcome.results}) <= MOST_PANELS
    heading = ", ".join(filter(None, (setting, "" if beside else at, front if colon else "")))
    return (at if beside else ""), heading, rest if colon else label


def _line_by_line(x: str, lines: Sequence[_Line]) -> Figure:
    """Names at the left, under their headings, and in every panel what was measured: the mean with its 95 %
    interval, below it a point for every seed. Where there is one seed, the interval is for other images but
    these networks, and the mean is an open circle."""
    names = list(dict.fromkeys(line.panel for line in lines)) or [""]  # nothing yet: an empty picture
    figure, panels = plots.new_panels(len(names))
    rows = _rows(lines)
    for line in lines:
        _draw(panels[names.index(line.panel)], rows.index((line.heading, line.label)), line)
    for axes, name in zip(panels, names, strict=True):
        axes.set_title(name, fontsize=9, fontweight="bold")
        axes.tick_params(axis="x", labelsize=8)
        axes.locator_params(axis="x", nbins=5 if len(panels) == 1 else 4)  # long names leave little room
    panels[0].set_yticks(range(len(rows)), [label or heading for heading, label in rows], fontsize=8)
    for text, (_, label) in zip(panels[0].get_yticklabels(), rows, strict=True):
        text.set_parse_math(False)
        text.set_fontweight("normal" if label else "bold")
    panels[0].set_ylim(len(rows) - 0.4, -0.6)
    one_seed = "" if all(len(line.per_seed) > 1 for line in lines) else "\n(open: one seed, over images)"
    figure.supxlabel(f"{x}; 95 % over seeds and images{one_seed}", fontsize=9)
    figure.set_size_inches(6.4, 0.9 + 0.22 * max(4, len(rows)) + 0.15 * bool(one_seed))
    return figure


def _rows(lines: Sequence[_Line]) -> list[tuple[str, str]]:
    """Headings and labels from top to bottom; a heading has a row of its own, with no label. What has no
    heading comes first: below one it would seem to belong to it."""
    labels: dict[str, dict[str, None]] = {"": {}}
    for line in lines:
        labels.setdefault(line.heading, {"": None})[line.label] = None
    return [(heading, label) for heading, below in labels.items() for label in below]


def _draw(axes: Axes, y: int, line: _Line) -> None:
    axes.plot(line.interval, [y, y], color=line.colour, linewidth=1.6, alpha=0.55)
    seeds = line.per_seed if len(line.per_seed) > 1 else ()
    inside = line.colour if seeds else "white"
    axes.plot([line.value], [y], "o", color=line.colour, markersize=5, markerfacecolor=inside)
    axes.plot(seeds, np.full(len(seeds), y + 0.3), ".", color=line.colour, markersize=3)


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


def write(figure: Figure | None, folder: Path, name: str) -> list[Path]:
    """As PNG and SVG. Where there is nothing to draw, a picture of ours from before would show what no longer
    holds, and is removed."""
    paths = [folder / f"{name}.{form}" for form in ("png", "svg")]
    for path in paths:
        if figure is not None:
            plots.save(figure, path)
        elif has_stamp(path):
            path.unlink()
    return [] if figure is None else paths


class CurvePoint(NamedTuple):
    """An arm and what it is compared with, by seed; nothing where it is the baseline itself."""

    arm: Mapping[int, Result]
    baseline: Mapping[int, Result]


def curves(
    x: str,
    series: Mapping[str, Mapping[float, CurvePoint]],
    baseline: str,
    levels: Sequence[float] = (),
    level: str = "",
) -> Figure:
    """ACR against a number, one curve per name: the mean over seeds, a point for every seed, and as a bar how
    sure the difference from the baseline is. The ACR itself is far less sure: it differs more between images
    than between arms, which see the same ones. The `levels` of a `level` to compare with are lines across."""
    figure, axes = plots.new_axes(x, "average certified radius")
    places = [at for points in series.values() for at in points]
    apart, several = 0.01 * (max(places) - min(places)), set[bool]()
    for i, (name, points) in enumerate(series.items()):
        colour, dash = plots.style(i)
        shift = apart * (i - (len(series) - 1) / 2)  # bars beside each other
        found = {at: stacked(list(points[at].arm.values())).mean(1) for at in sorted(points)}
        means = [seeds.mean() for seeds in found.values()]
        axes.plot([at + shift for at in found], means, dash, color=colour, label=name)
        for at, seeds in found.items():
            axes.plot(np.full(len(seeds), at + shift), seeds, ".", color=colour)
            if (difference := paired_gain(*points[at])) is not None:
                low, high = difference.interval
                reach = [[difference.value - low], [high - difference.value]]
                look: dict[str, Any] = {"fmt": "none", "ecolor": colour, "capsize": 2, "alpha": 0.7}
                axes.errorbar([at + shift], [seeds.mean()], reach, **look)
                several.add(difference.seeds is not None)
    for i, height in enumerate(levels):
        axes.axhline(height, color=_GREY, linestyle="--", linewidth=1, label=level if i == 0 else None)
    over = "seeds and images" if True in several else "images (one seed)"
    rest = "; one seed: over images" if len(several) == 2 else ""
    axes.set_title(f"bars: 95 % of the difference from {baseline}, over {over}{rest}", fontsize=9)
    axes.legend(fontsize=8, frameon=False)
    return figure
