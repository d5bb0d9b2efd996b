"""What the budgets save on a trained network: recorded votes replayed through every one of them.

    python -m benchmarks.budgets votes/sigma-0.25 votes/sigma-0.50 --json budgets.json

Prints Markdown. Samples are all votes of an image, also those that choose its class or plan its budget. As
drawn, a cell can only move by whole images; the mean over other orders of the same blocks, which are
independent and alike, says what a budget loses on these images on average.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from benchmarks.recorded import Record
from numpy.typing import NDArray

from smoothheads.certify.algorithm import CertifyParams
from smoothheads.certify.budgets import TableBudget
from smoothheads.report.table import Cell, Table, to_json, to_markdown
from smoothheads.results import metrics

Floats = NDArray[np.float64]
TABLE: dict[str, Any] = {"budget": "table"}
AWARE: dict[str, Any] = {"budget": "table", "label_aware": True}
OTHERS: dict[str, dict[str, Any]] = {
    "radius, tolerance 1 %": {"budget": "radius", "tolerance": 0.01},
    "radius, tolerance 5 %": {"budget": "radius", "tolerance": 0.05},
    "radius, tolerance 5 %, label-aware": {"budget": "radius", "tolerance": 0.05, "label_aware": True},
    "radius, tolerance 10 %": {"budget": "radius", "tolerance": 0.1},
    "anytime, read at n": {"budget": "anytime"},
}


class Outcome(NamedTuple):
    """Of every image [orders, images]; order 0 is the one that was drawn."""

    radius: Floats
    """0 where wrong or abstained."""
    samples: Floats
    right: NDArray[np.bool_]

    @property
    def mean_samples(self) -> float:
        return float(self.samples.mean())

    def accuracy(self, radii: Sequence[float]) -> Floats:
        """Certified accuracy in points [orders, radii]."""
        hits = self.right[..., None] & (self.radius[..., None] >= np.asarray(radii))
        accuracy: Floats = 100 * hits.mean(axis=1)
        return accuracy


def replay(orders: Sequence[Record], **changes: Any) -> Outcome:
    found = [
        [(image.label, record.certify(image, **changes)) for image in record.images] for record in orders
    ]
    right = [[each.prediction == label for label, each in row] for row in found]
    samples = [[each.n0 + each.n for _, each in row] for row in found]
    radius = [[each.radius * (each.prediction == label) for label, each in row] for row in found]
    return Outcome(np.array(radius, float), np.array(samples, float), np.array(right))


def shuffled(record: Record, count: int) -> list[Record]:
    """The record, then the same votes in `count` other orders."""
    rngs = [np.random.default_rng([7, order]) for order in range(count)]
    return [
        record,
        *(replace(record, images=tuple(image.reordered(rng) for image in record.images)) for rng in rngs),
    ]


@dataclass(frozen=True, slots=True)
class Study:
    """One network's replays."""

    record: Record
    radii: tuple[float, ...]
    fixed: Outcome
    blind: Outcome
    aware: Outcome
    single_blind: tuple[Outcome, ...]
    single_aware: tuple[Outcome, ...]
    others: dict[str, Outcome]

    @classmethod
    def of(cls, record: Record, orders: int) -> Study:
        terms = CertifyParams(sigma=record.config.sigma, alpha=record.config.alpha)
        radii, many = (
            TableBudget(n=record.config.plan.max_samples or 0).radii_for(terms),
            shuffled(record, orders),
        )
        return cls(
            record=record,
            radii=radii,
            fixed=replay([record]),
            blind=replay(many, **TABLE),
            aware=replay(many, **AWARE),
            single_blind=tuple(replay(many, **TABLE, radii=(radius,)) for radius in radii),
            single_aware=tuple(replay(many, **AWARE, radii=(radius,)) for radius in radii),
            others={name: replay([record], **changes) for name, changes in OTHERS.items()},
        )

    @property
    def n(self) -> int:
        return self.record.config.plan.max_samples or 0

    @property
    def title(self) -> str:
        return f"sigma {self.record.config.sigma:g}, {len(self.record.images)} images"

    def losses(self, outcome: Outcome) -> Floats:
        """Points that each cell of the table loses against fixed [orders, radii]."""
        return np.asarray(self.fixed.accuracy(self.radii) - outcome.accuracy(self.radii))

    def single_losses(self, outcomes: Sequence[Outcome]) -> Floats:
        return np.stack([self.losses(each)[:, at] for at, each in enumerate(outcomes)], axis=1)


def number(value: float, form: str) -> Cell:
    return Cell(format(value + 0.0, form), value)


def cell_table(study: Study) -> Table:
    """Certified accuracy of every radius, fixed against table."""
    rows = [_row("fixed", study.fixed.accuracy(study.radii)[0], ".2f")]
    for name, outcome in (("table", study.blind), ("table, label-aware", study.aware)):
        loss = study.losses(outcome)
        rows += [
            _row(name, outcome.accuracy(study.radii)[0], ".2f"),
            _row("- lost, as drawn", loss[0], ".2f"),
            _row(f"- lost, mean of {len(loss) - 1} orders", loss[1:].mean(axis=0), ".3f"),
        ]
    columns = ("certified accuracy, points", *(f"{radius:g}" for radius in study.radii))
    return Table(study.title, columns, tuple(rows))


def single_table(study: Study) -> Table:
    """One radius alone: samples per image, and what is lost at that radius."""
    rows = []
    for name, outcomes in (("", study.single_blind), (", label-aware", study.single_aware)):
        samples = np.array([outcome.mean_samples for outcome in outcomes])
        loss = study.single_losses(outcomes)[1:].mean(axis=0)
        rows += [
            _row(f"samples per image{name}", samples, ",.0f"),
            _row(f"- times fewer{name}", study.n / samples, ".1f"),
            _row(f"- points lost{name}", loss, ".3f"),
        ]
    columns = ("this radius alone", *(f"{radius:g}" for radius in study.radii))
    return Table(study.title, columns, tuple(rows))


def cost_table(study: Study) -> Table:
    """Samples and average certified radius of every budget, on the votes as drawn."""
    shown = {"fixed": study.fixed, "table": study.blind, "table, label-aware": study.aware} | study.others
    best = study.fixed.radius[0].mean()
    rows = []
    for name, outcome in shown.items():
        mean = metrics.mean(outcome.samples[0])
        cost = Cell(f"{mean.value:,.0f}", mean.value, f"± {mean.standard_error:,.0f}", mean.standard_error)
        less, ratio = study.n / mean.value, float(outcome.radius[0].mean() / best)
        rows.append((Cell(name), cost, number(less, ".1f"), number(ratio, ".4f")))
    columns = ("budget", "samples per image", "times fewer", "ACR / ACR of fixed")
    return Table(study.title, columns, tuple(rows))


class Pooled(NamedTuple):
    """One kind of budget over all networks; losses per cell, the mean of the shuffled orders and as drawn."""

    samples: float
    loss: Floats
    loss_drawn: Floats

    @classmethod
    def of(cls, parts: Sequence[tuple[Study, tuple[Outcome, ...]]]) -> Pooled:
        """`outcomes` is one for the whole table or one per radius; images count alike."""
        losses = [
            study.losses(found[0]) if len(found) == 1 else study.single_losses(found)
            for study, found in parts
        ]
        samples = [np.mean([each.mean_samples for each in found]) for _, found in parts]
        return cls(
            float(np.average(samples, weights=[len(study.record.images) for study, _ in parts])),
            np.concatenate([loss[1:].mean(axis=0) for loss in losses]),
            np.concatenate([loss[0] for loss in losses]),
        )


def goal_table(studies: Sequence[Study]) -> Table:
    kinds = {
        "table": (">= 6", Pooled.of([(study, (study.blind,)) for study in studies])),
        "table, label-aware": (">= 9", Pooled.of([(study, (study.aware,)) for study in studies])),
        "one radius": (">= 35", Pooled.of([(study, study.single_blind) for study in studies])),
        "one radius, label-aware": ("", Pooled.of([(study, study.single_aware) for study in studies])),
    }
    rows = tuple(
        (
            Cell(name),
            number(pooled.samples, ",.0f"),
            number(studies[0].n / pooled.samples, ".1f"),
            Cell(goal),
            *(number(float(loss), ".3f") for loss in (pooled.loss.mean(), pooled.loss.max())),
            *(number(float(loss), ".2f") for loss in (pooled.loss_drawn.mean(), pooled.loss_drawn.max())),
        )
        for name, (goal, pooled) in kinds.items()
    )
    columns = ("budget", "samples per image", "times fewer", "goal", "mean loss", "worst cell")
    return Table("all networks", (*columns, "mean loss as drawn", "worst cell as drawn"), rows)


def _row(name: str, values: Floats, form: str) -> tuple[Cell, ...]:
    return (Cell(name), *(number(float(value), form) for value in values))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Recordings of `benchmarks.recorded`."""
    orders: int = 20
    first: int | None = None
    """Only the first images of each recording."""
    json: Path | None = None


def main(settings: Settings) -> None:
    records = [Record.read(folder) for folder in settings.folders]
    studies = [
        Study.of(replace(record, images=record.images[: settings.first]), settings.orders)
        for record in records
    ]
    tables = [goal_table(studies)]
    for study in studies:
        tables += [cost_table(study), cell_table(study), single_table(study)]
    print("\n\n".join(to_markdown(table) for table in tables))
    if settings.json:
        facts = [study.record.facts for study in studies]
        settings.json.write_text(
            json.dumps({"facts": facts, "tables": [to_json(table) for table in tables]}, indent=1)
        )


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
