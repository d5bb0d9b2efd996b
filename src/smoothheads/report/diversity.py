"""How different heads are, as tables: a row for each network, or for each head of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from smoothheads.report.table import Cell, Table

Facts = Mapping[str, Any]

_MEASURES = {"disagreement": "disagreement", "error_correlation": "correlation", "variance_ratio": "variance"}
_SINGLE = "One head: there is nothing to compare, so disagreement, correlation and variance are left out."


def over_images(networks: Sequence[Facts]) -> Table:
    """The heads of each network compared over many images."""
    first = networks[0]["images"]
    several = any(facts["heads"] > 1 for facts in networks)
    columns = ("", "right %", "heads right %", *(_MEASURES.values() if several else ()))
    return Table(
        title=f"Heads under noise: {first['images']} images, {first['samples']:,} samples, "
        f"sigma {networks[0]['sigma']:g}",
        columns=columns,
        rows=tuple(_row(facts, several, alone=len(networks) == 1) for facts in networks),
        notes=_notes([facts["heads"] for facts in networks]),
    )


def of_one_image(networks: Sequence[Facts]) -> Table:
    """The log-probability gaps of one image, by the ensemble and each head."""
    image = networks[0]["image"]
    rows = [
        (
            Cell(name if len(networks) == 1 else f"{facts['name']}: {name}"),
            Cell(f"{100 * curve['right']:.2f}"),
            Cell(f"{curve['mean']:.2f}"),
            Cell("–" if curve["deviation"] is None else f"{curve['deviation']:.2f}"),
        )
        for facts in networks
        for name, curve in _curves(facts).items()
    ]
    return Table(
        title=f"Log-probability gap of image {image['index']} ({image['label']}), "
        f"{image['samples']:,} samples",
        columns=("", "right %", "mean gap", "deviation"),
        rows=tuple(rows),
    )


def _row(facts: Facts, several: bool, *, alone: bool) -> tuple[Cell, ...]:
    images, heads = facts["images"], facts["heads"]
    worst, best = min(images["head_accuracy"]), max(images["head_accuracy"])
    measures = [images[key] if heads > 1 else None for key in _MEASURES] if several else []
    return (
        Cell("all samples" if alone else facts["name"]),
        Cell(f"{100 * images['accuracy']:.1f}"),
        Cell(f"{100 * worst:.1f} to {100 * best:.1f}" if heads > 1 else "–"),
        *(Cell("–" if value is None else f"{value:.3f}") for value in measures),
    )


def _curves(facts: Facts) -> dict[str, Any]:
    curves = facts["image"]["curves"]
    return dict(curves) if facts["heads"] > 1 else {"network": curves["ensemble"]}


def _notes(heads: Sequence[int]) -> tuple[str, ...]:
    several = sorted({count for count in heads if count > 1})
    if not several:
        return (_SINGLE,)
    alone = " or ".join(f"{1 / count:.2f}" for count in several)
    return (
        "disagreement: share of samples on which two heads answer differently.",
        "correlation: of two heads' errors; 1 when they fail together, 0 when independently.",
        "variance: of the ensemble's logits over the heads' own; 1 when they move together, "
        f"{alone} when independently.",
    )
