"""Plots of certification logs. Every function returns a new figure; no global state is touched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, PercentFormatter
from scipy import special

from smoothheads.attack.outcome import AttackOutcome
from smoothheads.errors import ConfigError
from smoothheads.files import STAMP, reserve_file, write_stamped
from smoothheads.results.compare import ceiling_of
from smoothheads.results.metrics import binomial_band
from smoothheads.results.results import Results

if TYPE_CHECKING:  # heads under noise need torch, certificates do not
    from smoothheads.results.diversity import Margins

# Okabe and Ito's colours, told apart with any colour vision; the dashes tell apart what comes after them.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
FORMATS = ("png", "svg", "pdf")
_PROBABILITIES = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 0.9999)
_LOWEST = float(special.ndtri(_PROBABILITIES[0]))
INK, GREY, AXIS, GRID = "#222222", "#767676", "#bbbbbb", "#e4e4e4"


def certified_accuracy(logs: Sequence[Results]) -> Figure:
    """Returns certified accuracy over radius, with pointwise 95 % intervals for other images of this kind."""
    figure, axes = new_axes(f"{logs[0].norm} radius (pixels in [0, 1])", "certified accuracy", percent=True)
    for i, log in enumerate(logs):
        grid = np.linspace(0, float(log.radius.max()), 500)
        accuracy = log.certified_accuracy(grid)
        colour, dash = style(i)
        # Nothing is certified beyond the largest radius: the curve drops to 0 there.
        drop = [*grid, grid[-1]], [*accuracy, 0.0]
        axes.plot(*drop, dash, color=colour, linewidth=1.8)
        axes.fill_between(grid, *binomial_band(accuracy, len(log)), color=colour, alpha=0.14, linewidth=0)
    axes.set_xlim(0, 1.08 * max(float(log.radius.max()) for log in logs) or 1.0)
    _mark_ceiling(axes, logs)
    _legend(axes, [log.name for log in logs], "upper right", right=0.92)
    return figure


def attacked_accuracy(outcome: AttackOutcome, name: str, attacked: Sequence[float] = ()) -> Figure:
    """Returns accuracy over radius as certified and as attacks have left it: the truth lies between.

    Args:
        attacked: Radii that were attacked, which are in sight whatever came of it.
    """
    figure, axes = new_axes("l2 radius (pixels in [0, 1])", "accuracy within the radius", percent=True)
    # The axis reaches to the farthest certificate, break or attack.
    reached = [image.claim.radius for image in outcome.attacked]
    reached += [
        math.sqrt(image.broken) / outcome.max_value for image in outcome.attacked if image.broken is not None
    ]
    radii = np.linspace(0, 1.05 * max([*reached, *attacked], default=0.0) or 1.0, 500)
    low, high = (curve(radii.tolist()) for curve in (outcome.certified_accuracy, outcome.empirical_accuracy))
    # The smoothed classifier's accuracy lies between the two curves.
    for i, curve in enumerate((low, high)):
        axes.plot(radii, curve, color=style(i)[0], linewidth=1.8)
    axes.fill_between(radii, low, high, color=GREY, alpha=0.1, linewidth=0)
    axes.set_xlim(0, radii[-1])
    _legend(axes, [f"{name}, certified", f"{name}, attacked"], "upper right")
    return figure


def label_probability(logs: Sequence[Results]) -> Figure:
    """Returns the fraction of images whose true label has at least probability p under noise.

    The axis of p is a probit scale.

    Logs without votes show the certified lower bound, from 1/2 on; logs without sigma are left out.
    """
    figure, axes = new_axes(
        "probability p of the true label under noise", "images with at least p", percent=True
    )
    # A log keeps its colour although others are left out.
    shown = [(i, log, p) for i, log in enumerate(logs) if (p := log.label_probability()) is not None]
    limit = (_LOWEST if any(log.noisy is not None for _, log, _ in shown) else 0.0, 4.2)
    for i, log, p in shown:
        z = np.linspace(_LOWEST if log.noisy is not None else 0.0, limit[1], 500)
        # The fraction of images with at least this probability, on the probit scale z.
        share = np.mean(p[:, None] >= special.ndtr(z)[None, :], axis=0)
        colour, dash = style(i)
        axes.plot(z, share, dash, color=colour, linewidth=1.8)
    axes.set_xlim(*limit)
    axes.xaxis.set_major_locator(FixedLocator([float(special.ndtri(p)) for p in _PROBABILITIES]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda z, _: f"{special.ndtr(z):.4g}"))
    axes.axvline(0, color=GREY, linewidth=0.8)
    names = [log.name if log.noisy is not None else f"{log.name} (lower bound)" for _, log, _ in shown]
    _legend(axes, names, "lower left")
    return figure


def margin_histogram(networks: Sequence[tuple[str, Margins]], title: str) -> Figure:
    """Returns how often one noisy image has which log-probability margin.

    Of one network the ensemble is filled and each head a line; of several their ensembles are drawn.
    """
    figure, axes = new_axes(
        "log-probability of the label minus that of the best other class", "fraction of samples"
    )
    curves = [(name, margins, 0) for name, margins in networks]
    if len(networks) == 1:
        margins = networks[0][1]
        heads = list(margins.names) if len(margins.names) > 2 else ["network"]
        curves = [(name, margins, row) for row, name in enumerate(heads)]
    for i, (name, margins, row) in enumerate(curves):
        colour, dash = style(i)
        edges, counts_RB = margins.histogram(60)
        share_B = counts_RB[row] / counts_RB[row].sum()
        axes.stairs(share_B, edges, color=colour, linestyle=dash, linewidth=1.1 if row else 1.8, label=name)
        if row == 0:
            axes.stairs(share_B, edges, color=colour, fill=True, alpha=0.25, linewidth=0)
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=10, color=INK, parse_math=False)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.legend(frameon=False, fontsize=9, labelcolor=INK, handlelength=1.6)
    return figure


def style(i: int) -> tuple[str, str]:
    """Returns colour and dash of the i-th curve."""
    return COLOURS[i % len(COLOURS)], DASHES[i // len(COLOURS) % len(DASHES)]


def render(figure: Figure, kind: str) -> bytes:
    """Returns the figure as png, svg or pdf; equal figures give equal bytes."""
    require_format(kind)
    out = BytesIO()
    metadata: dict[str, dict[str, str | None]] = {
        "png": {"Software": STAMP},
        "svg": {"Date": None, "Creator": STAMP},
        "pdf": {"CreationDate": None, "Creator": STAMP},
    }
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "smoothheads"}):
        figure.savefig(out, format=kind, dpi=200, metadata=metadata[kind])
    return out.getvalue()


def save(figure: Figure, path: Path | str) -> None:
    """Writes the figure in the format of the file's ending."""
    path = Path(path)
    write_stamped(path, render(figure, ending(path)))


def ending(path: Path) -> str:
    return path.suffix.lower().removeprefix(".")


def require_format(kind: str) -> None:
    if kind not in FORMATS:
        raise ConfigError(f"A plot is written as {', '.join(FORMATS)}, not as {kind!r}.")


def require_place(path: Path | None) -> None:
    """Raises an error for a plot that cannot be written; call it before a long run."""
    if path is not None:
        require_format(ending(path))
        reserve_file(path)


def new_axes(x: str, y: str, *, percent: bool = False) -> tuple[Figure, Axes]:
    """Returns a figure with one plot.

    Args:
        percent: Whether the vertical axis shows fractions from 0 to 1 in per cent.
    """
    figure, (axes,) = new_panels(1)
    axes.set_xlabel(x, color=INK)
    axes.set_ylabel(y, color=INK)
    if percent:
        axes.set_ylim(0, 1)
        axes.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    return figure, axes


def new_panels(count: int) -> tuple[Figure, list[Axes]]:
    """Returns axes side by side, on the same scales."""
    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    panels: list[Axes] = figure.subplots(1, count, squeeze=False, sharex=True, sharey=True)[0].tolist()
    for axes in panels:
        axes.grid(color=GRID, linewidth=0.7)
        axes.set_axisbelow(True)
        axes.tick_params(length=0, labelcolor=INK, labelsize=9, pad=5)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        for side in ("left", "bottom"):
            axes.spines[side].set_color(AXIS)
    return figure, panels


def _mark_ceiling(axes: Axes, logs: Sequence[Results]) -> None:
    ceilings = {ceiling_of(log) for log in logs}
    if len(ceilings) != 1 or (ceiling := ceilings.pop()) is None or ceiling > axes.get_xlim()[1]:
        return
    axes.axvline(ceiling, color=GREY, linewidth=0.9, linestyle=(0, (2, 2)))
    axes.annotate(
        f"the most that n = {logs[0].n:,} can show",
        (ceiling, 0.98),
        xytext=(3, 0),
        textcoords="offset points",
        rotation=90,
        ha="left",
        va="top",
        fontsize=8,
        color=GREY,
    )


def _legend(
    axes: Axes, names: Sequence[str], place: Literal["upper right", "lower left"], right: float = 1.0
) -> None:
    """Adds an entry for each of the first lines; names are shown as they are, none as mathematics."""
    if not names:
        return
    legend = axes.legend(
        axes.lines[: len(names)],
        ["name"] * len(names),
        loc=place,
        bbox_to_anchor=(0, 0, right, 1),
        frameon=False,
        fontsize=9,
        labelcolor=INK,
        handlelength=1.6,
    )
    for text, name in zip(legend.get_texts(), names, strict=True):
        text.set_parse_math(False)
        text.set_text(name)
