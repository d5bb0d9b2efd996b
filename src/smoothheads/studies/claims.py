"""The paper's claims, each answered by paired differences with intervals, or by a measured ratio."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any

import numpy as np

from smoothheads.config import from_dict
from smoothheads.report.table import Cell, Table, interval, number, word
from smoothheads.results.metrics import Interval, MedianInterval
from smoothheads.studies.costs import Ratios
from smoothheads.studies.experiments import published_rows
from smoothheads.studies.results import StudyResults
from smoothheads.studies.statistics import Gain, Verdict, gain, paired_differences, paired_gain
from smoothheads.studies.tables import ONE_SEED

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLOSE = 0.05
"""Nearly equal: the interval of the difference lies within this fraction of the baseline's ACR."""

NOTHING = StudyResults(name="", title="", arms={})


@dataclass(frozen=True, slots=True)
class PaperClaim:
    """A claim of the paper, as `claims.toml` writes it."""

    id: str
    claim: str
    where: str
    """The experiment that answers it."""
    in_print: str
    above: tuple[tuple[str, ...], ...] = ()
    """Pairs of structures of which the first is claimed to be larger."""
    close: tuple[tuple[str, ...], ...] = ()
    """Pairs that are claimed to be nearly equal."""
    ratios: tuple[dict[str, Any], ...] = ()
    """Costs of one structure over another that are claimed to be below `most`."""
    of: tuple[str, ...] = ("certified_radius",)
    """The columns of the results that the claim is about."""
    sigmas: tuple[float, ...] = ()
    """The sigmas that the claim is about; empty: all."""
    most_at: tuple[float, ...] = ()
    """Sigmas at which the differences are claimed to be larger than at the others."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """One comparison that a claim rests on."""

    what: str
    cell: str
    """Where: base method and, of a radius, sigma; first the structures, if the claim is about several."""
    gain: Gain
    """The difference, or the ratio of two costs, which has no seeds."""
    verdict: Verdict
    column: str = ""
    """The column that differs; empty for ratios of costs, and for differences between sigmas."""
    sigma: float | None = None

    @property
    def one_seed(self) -> bool:
        """True for a statement about these networks only, not about training others."""
        return len(self.gain.per_seed) == 1

    @property
    def sign(self) -> str:
        """The format of its numbers: differences have a sign, ratios have none."""
        return "+" if self.gain.per_seed else ""


@cache
def all_claims() -> dict[str, PaperClaim]:
    """Returns the claims of the paper by their ids."""
    text = resources.files("smoothheads.studies").joinpath("claims.toml").read_text("utf-8")
    return {
        name: from_dict(PaperClaim, {"id": name, **fields}, name)
        for name, fields in tomllib.loads(text).items()
    }


def of_experiment(name: str) -> list[PaperClaim]:
    """Returns the claims that an experiment answers."""
    return [claim for claim in all_claims().values() if claim.where == name]


def evidence(claim: PaperClaim, study: StudyResults, ratios: Ratios) -> Iterator[Evidence]:
    """Yields every comparison of which both sides were measured."""
    bases = list(dict.fromkeys(arm.split(" ")[0] for arm in study.arms))
    # 1. Differences of certified rows, in every setting, at every sigma and for every base method.
    for (setting, sigma), base in itertools.product(study.groups(), bases):
        if not claim.sigmas or sigma in claim.sigmas:
            for pair, column in itertools.product((*claim.above, *claim.close), claim.of):
                yield from _compare(claim, study, (setting, sigma), base, (pair, column))
    # 2. Differences of such differences: larger at the sigmas `most_at` than at the others.
    for setting in dict.fromkeys(setting for setting, _ in study.groups()):
        for base, pair in itertools.product(bases, claim.above if claim.most_at else ()):
            yield from _compare_sigmas(claim, study, setting, base, pair)
    # 3. Costs. Measured ones are of networks as large as the paper's, counted ones of those certified here;
    # they are not mixed.
    for expected in claim.ratios:
        measured = any(cost == expected["cost"] for cost, *_ in ratios)
        known = ratios if measured else _counted_ratios(study)
        yield from _compare_costs(expected, known, several=len(claim.ratios) > 1)


def verdict(claim: PaperClaim, found: list[Evidence]) -> str:
    """Returns the verdict on a claim: one contradiction is enough, confirmation needs all of its parts."""
    verdicts = {item.verdict for item in found}
    if not verdicts:
        return "not measured"
    overall = next(each for each in ("contradicted", "undecided", "confirmed") if each in verdicts)
    notes = ["one seed"] if any(item.one_seed for item in found) else []
    measured = {item.sigma for item in found}
    missing = [f"{sigma:g}" for sigma in claim.most_at if sigma not in measured]
    if missing:
        overall = "undecided" if overall == "confirmed" else overall
        notes.append(f"sigma {' and '.join(missing)} not measured")
    return f"{overall} ({', '.join(notes)})" if notes else overall


def table(name: str, study: StudyResults, ratios: Ratios | None = None) -> Table:
    """Returns the claims that an experiment answers, each with its comparisons below it."""
    rows: list[tuple[Cell, ...]] = []
    claims = of_experiment(name)
    for claim in claims:
        found = list(evidence(claim, study, ratios or {}))
        rows.append((word(claim.id), word(verdict(claim, found)), *[Cell("")] * 3))
        rows += [
            (
                Cell(f"  {item.what}", item.what),
                word(item.verdict),
                number(item.gain.value, f"{item.sign}.4f"),
                ONE_SEED if item.one_seed else interval(item.gain.seeds, "+.4f"),
                interval(item.gain.images, f"{item.sign}.4f"),
            )
            for item in found
        ]
    return Table(
        title=f"Claims of {name}",
        columns=("claim", "verdict", "here", "95 % seeds and images", "95 % images"),
        rows=tuple(rows),
        notes=(
            *(f"{claim.id}: {claim.claim}. In print: {claim.in_print}." for claim in claims),
            "A claim over several cells is confirmed if all are, contradicted if one is. Costs: 95 % of the "
            "median over rounds.",
        ),
    )


def summary(studies: Mapping[str, StudyResults], ratios: Ratios) -> Table:
    """Returns all claims with their verdicts; `studies` by the name of the experiment."""
    rows = []
    for claim in all_claims().values():
        found = list(evidence(claim, studies.get(claim.where, NOTHING), ratios))
        here = []
        for item in found:
            numbers = (item.gain.value, *item.gain.interval)
            value, low, high = (f"{each:{item.sign}.3f}" for each in numbers)
            here.append(f"{item.cell}: {value} [{low}, {high}]")
        confirmed = sum(item.verdict == "confirmed" for item in found)
        count = f"{confirmed} of {len(found)}" if found else "–"
        texts = (claim.where, claim.in_print, "; ".join(here) or "–", count, verdict(claim, found))
        rows.append((Cell(f"{claim.id}: {claim.claim}", claim.id), *map(word, texts)))
    return Table(
        "All claims", ("claim", "where", "in print", "here, 95 %", "confirmed here", "verdict"), tuple(rows)
    )


def figure(studies: Mapping[str, StudyResults]) -> Figure | None:
    """Draws every comparison of ACR that a claim rests on; returns None if nothing was measured."""
    from smoothheads.studies.figures import BY_VERDICT, Line, draw_gains

    lines = [
        Line("", claim.where, f"{claim.id} {item.what}", item.gain, BY_VERDICT[item.verdict])
        for claim in sorted(all_claims().values(), key=lambda claim: claim.where)
        if claim.where in studies
        for item in evidence(claim, studies[claim.where], {})
        if item.column == "certified_radius"
    ]
    return draw_gains(lines) if lines else None


def _compare(
    claim: PaperClaim,
    study: StudyResults,
    group: tuple[str, float],
    base: str,
    compared: tuple[tuple[str, ...], str],
) -> Iterator[Evidence]:
    """Yields the difference of two structures in one column, if both were certified."""
    (setting, sigma), ((this, baseline), column) = group, compared
    # The arm has the same base, or where the paper has no such row (table8) the only base that it has.
    printed = {row.base for row in published_rows(claim.where) if (row.sigma, row.structure) == (sigma, this)}
    own = next(iter(printed)) if base not in printed and len(printed) == 1 else base
    arm, other = study.arm(setting, sigma, f"{own} {this}"), study.arm(setting, sigma, f"{base} {baseline}")
    found = paired_gain(arm, other, column)
    if found is None:
        return
    # Words for the reader: the pair and the column where the claim has several of them.
    pair = f"{this} − {baseline}"
    cell = f"{base if own == base else f'{own} and {base}'} {sigma:g}"
    what = " ".join(filter(None, (setting, f"{pair}, {cell}")))
    cell = f"{pair}, {cell}" if len(claim.above) + len(claim.close) > 1 else cell
    if len(claim.of) > 1:
        name = {"certified_radius": "ACR", "correct": "accuracy"}[column]
        what, cell = f"{what}, {name}", f"{cell}, {name}"
    # "Above" is judged by the sign of the interval, "close" by whether it lies within CLOSE of the baseline.
    judged = found.verdict
    if (this, baseline) in claim.close:
        room = CLOSE * float(other.column(column).mean())
        low, high = found.interval
        inside, outside = low > -room and high < room, low > room or high < -room
        judged = "confirmed" if inside else "contradicted" if outside else "undecided"
    yield Evidence(what, cell, found, judged, column, sigma)


def _compare_sigmas(
    claim: PaperClaim, study: StudyResults, setting: str, base: str, pair: tuple[str, ...]
) -> Iterator[Evidence]:
    """Yields how much larger a difference is at each sigma of `most_at` than at each of the others."""
    arm, baseline = (f"{base} {structure}" for structure in pair)
    differences = {
        sigma: paired_differences(study.arm(setting, sigma, arm), study.arm(setting, sigma, baseline))
        for sigma in dict.fromkeys(sigma for _, sigma in study.groups())
    }
    for high, low in itertools.product(claim.most_at, differences):
        seeds = sorted(differences.get(high, {}).keys() & differences[low].keys())
        if low in claim.most_at or not seeds:
            continue
        found = gain(np.stack([differences[high][seed] - differences[low][seed] for seed in seeds]))
        cell = f"{base} {high:g} against {low:g}"
        what = f"{pair[0]} − {pair[1]}, {cell}"
        yield Evidence(what, cell, found, found.verdict)


def _compare_costs(expected: Mapping[str, Any], ratios: Ratios, *, several: bool) -> Iterator[Evidence]:
    """Yields the ratio of two costs, judged by the fraction that it is claimed to be below.

    A cost that does not depend on the base method is one measurement, whatever number of bases share it.
    """
    most = float(expected["most"])
    bases: dict[MedianInterval, list[str]] = {}
    for (cost, base, this, baseline), ratio in ratios.items():
        if (cost, this, baseline) == (expected["cost"], expected["this"], expected["baseline"]):
            bases.setdefault(ratio, []).append(base)
    for ratio, sharing in bases.items():
        below: Verdict = "confirmed" if ratio.high < most else "undecided"
        judged: Verdict = "contradicted" if ratio.low > most else below
        of = " and ".join(sharing)
        what = f"{expected['cost']}: {expected['this']} / {expected['baseline']} < {most:g}, {of}"
        cell = f"{expected['cost']}, {of}" if several else of  # one of several costs is named
        measured = Gain(ratio.median, Interval(ratio.low, ratio.high), None, ())
        yield Evidence(what, cell, measured, judged)


def _counted_ratios(study: StudyResults) -> Ratios:
    """Returns ratios of arithmetic and parameters of the networks that were certified here."""
    sizes = {tuple(row.arm.split(" ", 1)): row.facts.size for row in study.rows if row.facts.size is not None}
    found = {}
    for (this, ours), (baseline, other) in itertools.permutations(sizes.items(), 2):
        if this[0] == baseline[0]:
            flops, params = ours.gmacs_paper / other.gmacs_paper, ours.params / other.params
            for cost, ratio in (("gflops", flops), ("params", params)):
                found[cost, this[0], this[1], baseline[1]] = MedianInterval(ratio, ratio, ratio)
    return found
