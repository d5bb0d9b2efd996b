"""The tables of a study: every arm's numbers over images and seeds, and differences with two intervals."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from smoothheads.report.table import Cell, Table
from smoothheads.results.intervals import Interval, mean
from smoothheads.studies.outcome import Outcome, Result
from smoothheads.studies.statistics import Gain, gain

Floats = NDArray[np.float64]
_NONE = Cell("–")


def all_tables(outcome: Outcome) -> list[Table]:
    return [headline(outcome), differences(outcome)]


def headline(outcome: Outcome) -> Table:
    """ACR and certified accuracy of every arm in every setting."""
    several = len({setting for setting, _ in outcome.groups()}) > 1
    rows = [
        _arm_row(outcome, setting, sigma, arm, several)
        for setting, sigma in outcome.groups()
        for arm in outcome.arms
    ]
    failed = [f"failed: {name}: {message}" for name, message in outcome.failed.items()]
    return Table(
        title=outcome.title,
        columns=("arm", "sigma", "seeds", "ACR", *(f"{r:.2f}" for r in outcome.radii), "noisy", "loss"),
        rows=tuple(rows),
        notes=(
            "ACR with its standard error, over seeds where there are several, else over images; certified "
            "accuracy (%) at the radii; noisy: samples classified right (%); loss: of training, last epoch.",
            *failed,
        ),
    )


def differences(outcome: Outcome) -> Table:
    """What each arm gains in ACR on its baseline, paired over images, noise and seeds."""
    rows = []
    several = len({setting for setting, _ in outcome.groups()}) > 1
    for setting, sigma, this, baseline, found in gains(outcome):
        name = f"{outcome.arms[this]} − {outcome.arms[baseline]}"
        name = f"{setting}: {name}" if several else name
        rows.append(
            (
                Cell(name, f"{setting}: {this} - {baseline}" if several else f"{this} - {baseline}"),
                Cell(f"{sigma:g}", sigma),
                Cell(f"{found.value:+.4f}", found.value),
                _interval(found.images),
                _NONE if found.seeds is None else _interval(found.seeds),
                Cell(" ".join(f"{each:+.3f}" for each in found.per_seed), found.per_seed),
                Cell(found.verdict, found.verdict),
            )
        )
    return Table(
        title="Gains in ACR, paired over images, noise and seeds",
        columns=("gain", "sigma", "ACR", "95 % images", "95 % seeds and images", "per seed", "above 0?"),
        rows=tuple(rows),
        notes=("images: bootstrap; seeds and images: both as crossed random effects.",),
    )


def costs(outcome: Outcome) -> Table:
    """What every arm cost here: means over seeds, of one member where several were trained apart."""
    rows = []
    for setting, sigma in outcome.groups():
        for arm, title in outcome.arms.items():
            results = list(outcome.of(setting, sigma, arm).values())
            if results:
                measured = [each.measured for each in results if each.measured is not None]
                rows.append(
                    (
                        Cell(" ".join(filter(None, (setting, title))), f"{setting} {arm}".strip()),
                        Cell(f"{sigma:g}", sigma),
                        _mean([each.facts.get("epoch_seconds") for each in results], ".2f"),
                        _mean([each.facts.get("peak_mib") for each in results], ".0f"),
                        _mean([float(each.samples.mean()) for each in measured], ",.0f"),
                        _mean([float(each.seconds.mean()) for each in measured], ".3f"),
                        _mean([each.facts.get("certify_peak_mib") for each in results], ".0f"),
                    )
                )
    return Table(
        title="Cost",
        columns=("arm", "sigma", "s / epoch", "train MiB", "samples", "s / image", "certify MiB"),
        rows=tuple(rows),
        notes=(
            "Seconds of the clock with one thread, on a machine that may have been busy; MiB: peak of the "
            "process; samples: per image. A row from another's ledger has that one's certification cost.",
        ),
    )


def gains(outcome: Outcome) -> Iterator[tuple[str, float, str, str, Gain]]:
    """Setting, sigma, arm, its baseline and what it gains, wherever both have a seed in common."""
    for setting, sigma in outcome.groups():
        for this, baseline in outcome.differences:
            found = paired_gain(outcome.of(setting, sigma, this), outcome.of(setting, sigma, baseline))
            if found is not None:
                yield setting, sigma, this, baseline, found


def paired_gain(
    this: Mapping[int, Result], baseline: Mapping[int, Result], of: str = "certified_radius"
) -> Gain | None:
    """Over the seeds that both have on the same images; none if there is none."""
    seeds = sorted(seed for seed in this.keys() & baseline.keys() if _same_images(this[seed], baseline[seed]))
    if not seeds:
        return None
    return gain(*(stacked([arm[seed] for seed in seeds], of) for arm in (this, baseline)))


def stacked(results: list[Result], of: str = "certified_radius") -> Floats:
    """A column of the measurements, by default the certified radii, [seeds, images]."""
    return np.stack([getattr(each.measured, of) for each in results if each.measured is not None])


def _same_images(one: Result, other: Result) -> bool:
    a, b = one.measured, other.measured
    same = a is not None and b is not None and np.array_equal(a.index, b.index)
    return same and a is not None and b is not None and np.array_equal(a.label, b.label)


def to_csv(table: Table) -> str:
    """Unrounded values; of an interval both ends."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(table.columns)
    for row in table.rows:
        writer.writerow([no_formula(_plain(cell)) for cell in row])
    return out.getvalue()


def no_formula(text: str) -> str:
    """A name that a spreadsheet would compute is marked as text; a number stays one."""
    computed = text.startswith(("=", "+", "-", "@")) and not set(text) <= set("0123456789.+-e ")
    return f"'{text}" if computed else text


def _arm_row(outcome: Outcome, setting: str, sigma: float, arm: str, several: bool) -> tuple[Cell, ...]:
    results = list(outcome.of(setting, sigma, arm).values())
    title = outcome.arms[arm]
    name = Cell(f"{setting}: {title}" if several else title, f"{setting}: {arm}" if several else arm)
    columns = 5 + len(outcome.radii)
    if not results:
        failed = any(
            "failed" in each.facts
            for each in outcome.results
            if (each.setting, each.sigma, each.arm) == (setting, sigma, arm)
        )
        state = Cell("failed", "failed") if failed else Cell("not yet", "not yet")
        return (name, Cell(f"{sigma:g}", sigma), state, *[_NONE] * (columns - 2))
    radii = stacked(results)
    acr, error = mean(radii.mean(1)) if len(radii) > 1 else mean(radii[0])
    shares = [100 * float((radii >= r).mean()) if r > 0 else 100 * _right(results) for r in outcome.radii]
    noisy = float(np.mean([np.mean(each.measured.noisy) for each in results if each.measured is not None]))
    losses = [each.facts["loss"] for each in results if "loss" in each.facts]
    return (
        name,
        Cell(f"{sigma:g}", sigma),
        Cell(str(len(results)), len(results)),
        Cell(f"{acr:.4f}", acr, f"±{error:.4f}", error),
        *(Cell(f"{share:.1f}", share) for share in shares),
        _NONE if np.isnan(noisy) else Cell(f"{100 * noisy:.1f}", 100 * noisy),
        Cell(f"{np.mean(losses):.3f}", float(np.mean(losses))) if losses else _NONE,
    )


def _mean(values: list[float | None], form: str) -> Cell:
    known = [value for value in values if value is not None]
    return Cell(format(float(np.mean(known)), form), float(np.mean(known))) if known else _NONE


def _right(results: list[Result]) -> float:
    found = [np.mean(r.measured.prediction == r.measured.label) for r in results if r.measured is not None]
    return float(np.mean(found))


def _interval(interval: Interval) -> Cell:
    return Cell(f"[{interval.low:+.4f}, {interval.high:+.4f}]", tuple(interval))


def _plain(cell: Cell) -> str:
    if isinstance(cell.value, tuple):
        return " ".join(repr(each) for each in cell.value)
    return cell.text if cell.value is None else str(cell.value)
