"""Other threats for people and for programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from smoothheads.report.table import Table
from smoothheads.report.tables import certified
from smoothheads.results import derive, metrics
from smoothheads.results.compare import summarize
from smoothheads.results.results import Results


@dataclass(frozen=True, slots=True)
class Threats:
    """The certificates of one log against one or more threats that share a table."""

    title: str
    logs: tuple[Results, ...]
    """Named after their threats; radii in pixels."""
    radii: tuple[float, ...]
    """Of the table, in its unit."""
    unit: float = 1.0
    """Pixels in one unit of the table's radii."""

    def table(self) -> Table:
        in_units = [replace(log, radius=log.radius / self.unit) for log in self.logs]
        summaries = [summarize(log, self.radii) for log in in_units]
        return certified(self.title, summaries, [f"{radius:.4g}" for radius in self.radii], "threat")

    def to_json(self) -> Iterator[dict[str, Any]]:
        """One object per threat; radii in pixels, rounded down."""
        radii = [self.unit * radius for radius in self.radii]
        for log in self.logs:
            summary = summarize(log, radii)
            yield {
                "threat": log.name,
                "norm": log.norm,
                "acr": summary.acr.value,
                "radii": radii,
                "certified": [each.value for each in summary.certified],
                "images": [_image(log, i) for i in range(len(log))],
            }


def linf(log: Results, levels: Sequence[float] | None = None, dimension: int | None = None) -> Threats:
    """In steps of the images' grid, as l-infinity threats are stated (8/255)."""
    q = (None if log.manifest is None else log.manifest.grid) or 255
    converted = replace(derive.linf(log, dimension), name=derive.LINF)
    top = q * float(converted.radius.max())
    radii = (0.0, *(2.0**i for i in range(-3, 9) if 2.0**i <= top)) if levels is None else tuple(levels)
    title = f"{log.name}: certified accuracy (%) at l-infinity radius r, in steps of 1/{q}"
    return Threats(title, (converted,), radii, 1 / q)


def top_k(log: Results, ks: Sequence[int], radii: Sequence[float] | None = None) -> Threats:
    """Beside the first place that the log itself certifies."""
    others = [replace(derive.top_k(log, k), name=f"top-{k}") for k in ks]
    logs = (replace(log, name="the log itself"), *others)
    top = max(float(each.radius.max()) for each in logs)
    chosen = metrics.default_radii(top) if radii is None else tuple(radii)
    title = f"{log.name}: true label certified among the k most likely (%), at l2 radius r"
    return Threats(title, logs, chosen)


def _image(log: Results, i: int) -> dict[str, Any]:
    return {
        "idx": int(log.index[i]),
        "label": int(log.label[i]),
        "predict": int(log.prediction[i]),
        "radius": float(log.radius[i]),
    }
