"""The paper's cost tables: ratios measured here next to those that follow from the published values.

`python -m benchmarks.costs` measures them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smoothheads.config import from_dict, load_json, to_dict
from smoothheads.errors import ConfigError, LedgerError
from smoothheads.files import write_json
from smoothheads.report.table import Table, interval, number, word
from smoothheads.results.metrics import MedianInterval, interval_of_median
from smoothheads.studies.experiments import PublishedRow, published_rows

FILE = "costs.json"
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "train": ("train_seconds_per_epoch",),
    "certify": ("certify_seconds_per_image", "seconds_per_image"),
    "gflops": ("gflops",),
    "params": ("params",),
}
"""Every cost with its columns in the published tables."""
MOST = 1e15
"""More than any rate, arithmetic or number of parameters."""
Ratios = Mapping[tuple[str, str, str, str], MedianInterval]
"""Ratios of costs by cost, base method of the baseline, this structure and the baseline structure."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostSettings:
    """How costs are measured; by default with networks as large as the paper's."""

    arch: str = "resnet110"
    side: int = 32
    images: int = 32
    """Images per training step; times are per image. With few of them the optimiser and the cosine term,
    which cost the same for any number, weigh more than in a real run."""
    samples: int = 100
    """Noisy samples per turn of a certification."""
    rounds: int = 7
    threads: int = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Costs:
    """Measured costs by arm ("gaussian some"), as `costs.json` has them."""

    settings: CostSettings
    machine: dict[str, Any]
    train: dict[str, tuple[float, ...]]
    """Images per second in training, in every round."""
    certify: dict[str, tuple[float, ...]]
    """Noisy samples per second in certification, in every round."""
    params: dict[str, int]
    gflops: dict[str, float]

    def __post_init__(self) -> None:
        for name in _COLUMNS:
            costs = {arm: np.atleast_1d(each) for arm, each in getattr(self, name).items()}
            if len({len(each) for each in costs.values()}) > 1:
                raise ConfigError(f"The rows of {name} have different numbers of rounds.")
            for arm, each in costs.items():
                if len(arm.split(" ")) != 2:
                    raise ConfigError(f"{arm[:40]!r} in {name} is no base and structure.")
                if not len(each) or not all(0 < value < MOST for value in each.tolist()):
                    raise ConfigError(f"{arm} in {name} has a number that is not between 0 and {MOST:g}.")
        if self.params.keys() != self.gflops.keys():
            raise ConfigError("params and gflops have different rows.")

    def ratios(self) -> Ratios:
        """Returns all ratios. This structure has the baseline's base, or the first that it has, by name."""
        ratios = {}
        for name in _COLUMNS:
            arms = sorted(getattr(self, name))
            for other, this in itertools.product(arms, dict.fromkeys(arm.split(" ")[1] for arm in arms)):
                base, baseline = other.split(" ")
                own = f"{base} {this}"
                own = own if own in arms else next(arm for arm in arms if arm.endswith(f" {this}"))
                ratio = self.ratio(name, own, other)
                if this != baseline and ratio is not None:
                    ratios[name, base, this, baseline] = ratio
        return ratios

    def ratio(self, name: str, this: str, baseline: str) -> MedianInterval | None:
        """Returns one cost of this over the baseline, with the 95 % interval of the median over rounds.

        Args:
            name: train, certify, gflops or params.
            this: The arm of the numerator.
            baseline: The arm of the denominator.
        """
        costs = getattr(self, name)
        if this not in costs or baseline not in costs:
            return None
        own, other = np.atleast_1d(costs[this]), np.atleast_1d(costs[baseline])
        # Train and certify are rates, of which more is cheaper.
        return interval_of_median(other / own if name in ("train", "certify") else own / other)


def save(costs: Costs, folder: Path) -> None:
    write_json(folder / FILE, to_dict(costs))


def load(folder: Path) -> Costs | None:
    """Returns the costs in a folder of results, if there are any; raises LedgerError if they are damaged."""
    path = folder / FILE
    if not path.is_file():
        return None
    try:
        return from_dict(Costs, load_json(path))
    except ConfigError as error:
        raise LedgerError(f"The measured costs in {path} are damaged, measure them again: {error}") from None


def table(name: str, costs: Costs) -> Table:
    """Returns SOME over every other structure of the table, in time, arithmetic and parameters."""
    rows = []
    printed = published_rows(name)
    some = [row for row in printed if row.structure == "some"]
    bases = [row.base for row in some]
    # SOME is compared with rows of its own base, in table8 with rows of other bases.
    others = [row for row in printed if row.structure != "some"]
    others = [row for row in others if row.base in bases] or others
    first: dict[str, PublishedRow] = {}
    for row in others:
        first.setdefault(row.arm, row)
    for cost, columns in _COLUMNS.items():
        column = next((known for known in columns if known in printed[0].values), None)
        for other in first.values():
            base = other.base if other.base in bases else bases[0]
            here = costs.ratio(cost, f"{base} some", other.arm)
            # The published ratio is that of SOME at the same sigma, if it has the same base there.
            same_sigma = sorted((r for r in some if r.sigma == other.sigma), key=lambda r: r.base != base)
            published = None
            if column is not None and same_sigma:
                published = total(same_sigma[0].values[column]) / total(other.values[column])
            if published is not None or here is not None:
                of = base if base == other.base else f"{base} / {other.base}"
                rows.append(
                    (
                        word(f"{cost}: some / {other.structure}, {of}"),
                        number(here and here.median, ".3f"),
                        interval(here and (here.low, here.high), ".3f"),
                        number(published, ".3f"),
                    )
                )
    sizes = "; ".join(
        f"{arm}: {costs.params[arm]:,} parameters, {costs.gflops[arm]:.4f} GFLOPs"
        for arm in dict.fromkeys(row.arm for row in printed)
        if arm in costs.params
    )
    settings = costs.settings
    return Table(
        title=f"{name}: cost ratios, {settings.arch} at {settings.side}x{settings.side}",
        columns=("cost", "here", "95 % of the median", "published"),
        rows=tuple(rows),
        notes=(
            f"{settings.rounds} rounds in turns on {costs.machine.get('processor', 'an unknown processor')}, "
            f"processor time of {settings.threads} thread. K networks trained apart take K times one, by "
            "definition.",
            f"GFLOPs in the paper's convention. {sizes}.",
            *_not_measured(printed, costs),
        ),
    )


def _not_measured(printed: tuple[PublishedRow, ...], costs: Costs) -> list[str]:
    """Returns a note on published costs that were not measured here."""
    columns = [name for name in printed[0].values if name not in itertools.chain(*_COLUMNS.values())]
    memory = [name for name in columns if name.endswith("_mib")]
    hours = [name for name in columns if name.endswith("hours") or "hours_" in name]
    missing = [f"{', '.join(hours)}, which follow from the seconds"] if hours else []
    arms = dict.fromkeys(row.arm for row in printed if row.arm not in costs.certify)
    missing += [f"the row {arm}" for arm in arms]
    notes = [f"Published but not measured here: {'; '.join(missing)}."] if missing else []
    if memory:
        notes.append(f"Peak memory ({', '.join(memory)}) is measured apart: see benchmarks/README.md.")
    return notes


def total(text: str) -> float:
    """Returns the value of a printed sum such as `21.5 x3 + 1055.0`."""
    parts = [re.fullmatch(r"([\d.]+)(?: x(\d+))?", part.strip()) for part in text.split("+")]
    return sum(float(part[1]) * int(part[2] or 1) for part in parts if part)
