"""The paper's claims, each answered by paired differences with intervals, or by a measured ratio."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from smoothheads.config import from_dict
from smoothheads.report.table import Cell, Table, number, word
from smoothheads.results.metrics import Interval, MedianInterval
from smoothheads.studies import published
from smoothheads.studies.outcome import Outcome
from smoothheads.studies.statistics import Verdict
from smoothheads.studies.tables import ONE_SEED, interval, paired_gain, stacked

CLOSE = 0.05
"""Nearly equal: the interval of the difference lies within this share of the baseline's ACR."""


Ratios = Mapping[tuple[str, str, str, str], MedianInterval]
"""Of measured costs, by (cost, base, this structure, baseline structure)."""


@dataclass(frozen=True, slots=True)
class PaperClaim:
    id: str
    claim: str
    where: str
    in_print: str
    above: tuple[tuple[str, str], ...] = ()
    close: tuple[tuple[str, str], ...] = ()
    ratios: tuple[dict[str, Any], ...] = ()
    of: str = "certified_radius"
    sigmas: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimEvidence:
    """One comparison that a claim rests on."""

    what: str
    cell: str
    """Where: the base method and, of a radius, sigma; first the structures, if the claim is about several."""
    value: float
    images: Interval
    seeds: Interval | None
    verdict: Verdict
    per_seed: tuple[float, ...] = ()
    """Of radii: what each pair of networks differs by."""

    @property
    def one_seed(self) -> bool:
        """Whether it speaks of these networks only, not of training others."""
        return len(self.per_seed) == 1

    @property
    def interval(self) -> Interval:
        """The one that it is judged by."""
        return self.images if self.seeds is None else self.seeds

    @property
    def sign(self) -> str:
        """How its numbers are formatted: differences have a sign, ratios of costs have none."""
        return "+" if self.per_seed else ""


@cache
def all_claims() -> dict[str, PaperClaim]:
    text = resources.files("smoothheads.studies").joinpath("claims.toml").read_text("utf-8")
    return {
        name: from_dict(PaperClaim, {"id": name, **fields}, name)
        for name, fields in tomllib.loads(text).items()
    }


def of_experiment(name: str) -> list[PaperClaim]:
    return [claim for claim in all_claims().values() if claim.where == name]


def answers(claim: PaperClaim, outcome: Outcome, ratios: Ratios) -> Iterator[ClaimEvidence]:
    """Every comparison for which both sides were measured."""
    for setting, sigma in outcome.groups():
        if claim.sigmas and sigma not in claim.sigmas:
            continue
        for base in dict.fromkeys(arm.split(" ")[0] for arm in outcome.arms):
            for this, baseline in (*claim.above, *claim.close):
                compared = _compared(claim, outcome, (setting, sigma), base, (this, baseline))
                if compared is not None:
                    yield compared
    for wanted in claim.ratios:
        measured = any(key[0] == wanted["cost"] for key in ratios)
        known = ratios if measured else _counted(outcome)
        yield from _costs(wanted, known, several=len(claim.ratios) > 1)


def verdict(evidence: list[ClaimEvidence]) -> str:
    """Of the whole claim: one contradiction is enough, confirmation needs all."""
    verdicts = {item.verdict for item in evidence}
    if not verdicts:
        return "not measured"
    whole = next(each for each in ("contradicted", "undecided", "confirmed") if each in verdicts)
    return f"{whole} (one seed)" if any(item.one_seed for item in evidence) else whole


def table(name: str, outcome: Outcome, ratios: Ratios | None = None) -> Table:
    """The claims that an experiment touches, each with its comparisons below it."""
    rows: list[tuple[Cell, ...]] = []
    for claim in of_experiment(name):
        evidence = list(answers(claim, outcome, ratios or {}))
        whole = verdict(evidence)
        rows.append((word(claim.id), word(whole), *[Cell("")] * 3))
        rows += [_row(item) for item in evidence]
    return Table(
        title=f"Claims of {name}",
        columns=("claim", "verdict", "here", "95 % seeds and images", "95 % images"),
        rows=tuple(rows),
        notes=(
            *(f"{claim.id}: {claim.claim}. In print: {claim.in_print}." for claim in of_experiment(name)),
            "A claim over several cells is confirmed if all are, contradicted if one is. Costs: 95 % of the "
            "median over rounds.",
        ),
    )


def summary(outcomes: Mapping[str, Outcome], ratios: Ratios) -> Table:
    """All claims with their verdicts; `outcomes` by experiment."""
    rows = []
    for claim in all_claims().values():
        outcome = outcomes.get(claim.where, NOTHING)
        evidence = list(answers(claim, outcome, ratios))
        confirmed = sum(item.verdict == "confirmed" for item in evidence)
        count = f"{confirmed} of {len(evidence)}" if evidence else "–"
        here = [
            f"{item.cell}: {item.value:{item.sign}.3f} "
            f"[{item.interval.low:{item.sign}.3f}, {item.interval.high:{item.sign}.3f}]"
            for item in evidence
        ]
        rows.append(
            (
                Cell(f"{claim.id}: {claim.claim}", claim.id),
                *map(word, (claim.where, claim.in_print, "; ".join(here) or "–", count, verdict(evidence))),
            )
        )
    return Table(
        "All claims", ("claim", "where", "in print", "here, 95 %", "confirmed here", "verdict"), tuple(rows)
    )


NOTHING = Outcome("", "", {}, (), (), ())


def _counted(outcome: Outcome) -> Ratios:
    """Of arithmetic and parameters of the networks that were certified here. Costs that were measured are of
    networks as large as the paper's; the two are not mixed."""
    sizes = {}
    for each in outcome.results:
        base, _, structure = each.arm.partition(" ")
        if "size" in each.facts:
            sizes[base, structure] = each.facts["size"]
    found = {}
    for (base, this), (other, baseline) in itertools.permutations(sizes, 2):
        for cost, name in (("gflops", "gmacs_paper"), ("params", "params")):
            if base == other:
                ratio = sizes[base, this][name] / sizes[base, baseline][name]
                found[cost, base, this, baseline] = MedianInterval(ratio, ratio, ratio)
    return found


def _costs(wanted: Mapping[str, Any], ratios: Ratios, *, several: bool) -> Iterator[ClaimEvidence]:
    """Whether a cost is below the claimed share of another; one of several is named."""
    most = float(wanted["most"])
    for (cost, base, this, baseline), ratio in ratios.items():
        if (cost, this, baseline) == (wanted["cost"], wanted["this"], wanted["baseline"]):
            below: Verdict = "confirmed" if ratio.high < most else "undecided"
            judged: Verdict = "contradicted" if ratio.low > most else below
            what = f"{cost}: {this} / {baseline} < {most:g}, {base}"
            cell = f"{cost}, {base}" if several else base
            yield ClaimEvidence(what, cell, ratio.median, Interval(ratio.low, ratio.high), None, judged)


def _compared(
    claim: PaperClaim, outcome: Outcome, where: tuple[str, float], base: str, pair: tuple[str, str]
) -> ClaimEvidence | None:
    own = _base_of(claim, where[1], base, pair[0])
    arms = [outcome.of(*where, f"{of} {structure}") for of, structure in zip((own, base), pair, strict=True)]
    gain = paired_gain(arms[0], arms[1], claim.of)
    if gain is None:
        return None
    of = base if own == base else f"{own} and {base}"
    what = " ".join(filter(None, (where[0], f"{pair[0]} − {pair[1]}, {of} {where[1]:g}")))
    cell = f"{of} {where[1]:g}"
    if len(claim.above) + len(claim.close) > 1:
        cell = f"{pair[0]} − {pair[1]}, {cell}"
    judged = gain.verdict
    if pair in claim.close:
        room = CLOSE * float(stacked(list(arms[1].values()), claim.of).mean())
        low, high = gain.interval
        inside, outside = low > -room and high < room, low > room or high < -room
        judged = "confirmed" if inside else "contradicted" if outside else "undecided"
    return ClaimEvidence(what, cell, gain.value, gain.images, gain.seeds, judged, gain.per_seed)


def _base_of(claim: PaperClaim, sigma: float, base: str, structure: str) -> str:
    """The base of the arm to compare: the same, or where the paper has none (table8) the only one it has."""
    bases = {
        row.base for row in published.rows(claim.where) if (row.sigma, row.structure) == (sigma, structure)
    }
    return next(iter(bases)) if base not in bases and len(bases) == 1 else base


def _row(answer: ClaimEvidence) -> tuple[Cell, ...]:
    return (
        Cell(f"  {answer.what}", answer.what),
        word(answer.verdict),
        number(answer.value, f"{answer.sign}.4f"),
        ONE_SEED if answer.one_seed else interval(answer.seeds),
        interval(answer.images, answer.sign),
    )
