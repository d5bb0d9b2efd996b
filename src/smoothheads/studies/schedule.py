"""The curve of lambda over training (the paper's Figure 7), which needs no training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smoothheads.objectives import TeachingConfig
from smoothheads.objectives.pace import scheduled_lambda
from smoothheads.report.table import Table, number

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAST = (1.2, 1.0, 0.8, 1.6)
SHOWN = (1, 2, 10, 25, 50, 100, 150)


def curve(last: float, *, classes: int = 10, epochs: int = 150) -> list[float]:
    """Lambda of every epoch."""
    config = TeachingConfig(lambda_last=last)
    return [scheduled_lambda(config, epoch=t, epochs=epochs, classes=classes) for t in range(1, epochs + 1)]


def table() -> Table:
    """The values of the paper's four schedules on CIFAR-10."""
    rows = [(number(last, "g"), *(number(curve(last)[t - 1], ".6f") for t in SHOWN)) for last in LAST]
    return Table(
        title="fig7: lambda against the epoch, -log10(a t + b) from ln 10 over 150 epochs",
        columns=("lambda_last", *(f"t = {t}" for t in SHOWN)),
        rows=tuple(rows),
    )


def figure() -> Figure:
    from smoothheads.report import plots

    drawn, axes = plots.new_axes("epoch", "lambda")
    for i, last in enumerate(LAST):
        colour, dash = plots.style(i)
        axes.plot(range(1, 151), curve(last), dash, color=colour, label=f"lambda_last {last:g}")
    axes.legend(frameon=False)
    return drawn
