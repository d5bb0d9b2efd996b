"""Plots of certification logs. Every function returns a new figure; no global state is touched."""

from __future__ import annotations

import math
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

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
_STEPS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # between the ticks of a radius axis
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
        outcome: The attacked images.
        name: The name of the ledger.
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
    _radius_axis(axes, [log for _, log, _ in shown], limit)
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
    names: list[tuple[Any, str]] = []
    for number, (network, margins) in enumerate(networks):
        heads = len(margins.names) - 1
        edges, counts_RB = margins.histogram(60)
        share_RB = counts_RB / counts_RB[0].sum()
        # Heads are shown only where there is room: of a single network.
        alone = len(networks) == 1
        for k in range(1, heads + 1) if alone and heads > 1 else ():
            axes.stairs(share_RB[k], edges, color=style(k)[0], linestyle=style(k)[1], linewidth=1.1)
        axes.stairs(share_RB[0], edges, color=style(number)[0], fill=True, alpha=0.25, linewidth=0)
        outline = axes.stairs(share_RB[0], edges, color=style(number)[0], linewidth=1.8)
        names.append((outline, network if not alone else "ensemble" if heads > 1 else "network"))
        if alone and heads > 1:
            names += list(zip(axes.patches[:heads], margins.names[1:], strict=True))
    axes.axvline(0, color=GREY, linewidth=0.8)
    axes.set_ylim(bottom=0)
    axes.set_title(title, fontsize=10, color=INK, parse_math=False)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    lines, labels = zip(*names, strict=True)
    axes.legend(lines, labels, frameon=False, fontsize=9, labelcolor=INK, handlelength=1.6)
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
        x: The label of the horizontal axis.
        y: The label of the vertical axis.
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


def _radius_axis(axes: Axes, logs: Sequence[Results], limit: tuple[float, float]) -> None:
    """Adds an axis of the radius that a probability gives, where sigma and noise are the same for all."""
    maps = {(log.law, log.sigma) for log in logs}
    if len(maps) != 1:
        return
    law, sigma = maps.pop()
    if sigma is None:
        return
    # A tick stands where a class of that probability would have a round radius.
    most = sigma * float(law.unit_radius(special.ndtr(np.array(limit[1]))))
    step = next((step for step in _STEPS if most / step <= 5), _STEPS[-1])
    radii = np.arange(0, most, step).tolist()
    top = axes.secondary_xaxis("top")
    places = [float(special.ndtri(law.probability(radius, sigma))) for radius in radii]
    top.set_xticks(places, [f"{radius:g}" for radius in radii])
    top.set_xlabel(f"{law.norm} radius of a class this probable", color=INK)
    top.tick_params(length=0, labelcolor=INK, labelsize=9)
    top.spines["top"].set_visible(False)


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
