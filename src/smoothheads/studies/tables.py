"""The tables of a study: every arm's numbers over images and seeds, and differences with two intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from smoothheads.report.table import NONE, Cell, Table, number, word
from smoothheads.report.tables import CLASSES, classes
from smoothheads.results import metrics
from smoothheads.results.metrics import Estimate, Interval, mean
from smoothheads.studies.outcome import Outcome, Result, measured
from smoothheads.studies.statistics import Gain, gain

Floats = NDArray[np.float64]

ONE_SEED = Cell("one seed")
"""Where an interval over seeds would stand: what is said holds for these networks only."""


def all_tables(outcome: Outcome) -> list[Table]:
    return [headline(outcome), differences(outcome)]


def headline(outcome: Outcome) -> Table:
    """ACR and certified accuracy of every arm in every setting and at every sigma that it has."""
    cells = {each.cell for each in outcome.results}
    rows = [
        _arm_row(outcome, setting, sigma, arm)
        for setting, sigma in outcome.groups()
        for arm in outcome.arms
        if (setting, sigma, arm) in cells
    ]
    shares = tuple(f"{radius:.2f}" for radius in outcome.radii)
    failed = [f"failed: {name}: {message}" for name, message in outcome.failed.items()]
    return Table(
        title=outcome.title,
        columns=("arm", "sigma", "seeds", "ACR", *shares, "classes", "noisy", "loss", "easy"),
        rows=tuple(rows),
        notes=(
            "ACR with its standard error, over seeds where there are several, else over images; certified "
            "accuracy (%) at the radii; noisy: samples classified right (%); loss: of training, last epoch; "
            "easy: training images whose loss was then at most the arm's lambda (%), taught by it or not.",
            CLASSES,
            *failed,
        ),
    )


def differences(outcome: Outcome) -> Table:
    """What each arm gains in ACR on its baseline, paired over images, noise and seeds."""
    rows = [
        (
            _name(
                outcome,
                setting,
                pair_title(outcome, this, baseline),
                f"{this} - {baseline}",
            ),
            number(sigma, "g"),
            number(found.value, "+.4f"),
            word(found.verdict),
            ONE_SEED if found.seeds is None else interval(found.seeds),
            interval(found.images),
            Cell(" ".join(f"{each:+.3f}" for each in found.per_seed), found.per_seed),
        )
        for setting, sigma, this, baseline, found in gains(outcome)
    ]
    return Table(
        title="Gains in ACR, paired over images, noise and seeds",
        columns=("gain", "sigma", "ACR", "above 0?", "95 % seeds and images", "95 % images", "per seed"),
        rows=tuple(rows),
        notes=(
            "images: bootstrap; seeds and images: both as crossed random effects. Each interval is for its "
            "own gain, not corrected for their number.",
        ),
    )


def costs(outcome: Outcome) -> Table:
    """What every arm cost here: means over seeds, of one member where several were trained apart."""
    rows = []
    for setting, sigma in outcome.groups():
        for arm, title in outcome.arms.items():
            results = list(outcome.of(setting, sigma, arm).values())
            if results:
                votes = measured(results)
                rows.append(
                    (
                        Cell(" ".join(filter(None, (setting, title))), f"{setting} {arm}".strip()),
                        number(sigma, "g"),
                        *_size(results),
                        _mean([each.facts.get("epoch_seconds") for each in results], ".2f"),
                        _mean([each.facts.get("peak_mib") for each in results], ".0f"),
                        _mean([float(each.samples.mean()) for each in votes], ",.0f"),
                        _mean([float(each.seconds.mean()) for each in votes], ".3f"),
                        _mean([each.facts.get("certify_peak_mib") for each in results], ".0f"),
                    )
                )
    known = sorted({name for each in outcome.results for name in each.facts.get("processors", ())})
    return Table(
        title="Cost",
        columns=(
            *("arm", "sigma", "params", "GMACs"),
            *("s / epoch", "train MiB", "samples", "s / image", "certify MiB"),
        ),
        rows=tuple(rows),
        notes=(
            "GMACs: multiply-accumulates of convolutions and linear layers for one image, in billions.",
            "Seconds of the clock with one thread, on a machine that may have been busy; MiB: peak of the "
            "process; samples: per image. A row from another's ledger has that one's certification cost.",
            *([f"Processors, where a row notes them: {', '.join(known)}."] if known else []),
        ),
    )


def _size(results: list[Result]) -> list[Cell]:
    """The same for all seeds."""
    known: Mapping[str, float] = next((each.facts["size"] for each in results if "size" in each.facts), {})
    return [number(known.get("params"), ",.0f"), number(known.get("gmacs"), ".4f")]


def gains(outcome: Outcome) -> Iterator[tuple[str, float, str, str, Gain]]:
    """Setting, sigma, arm, its baseline and what it gains, wherever both have a seed in common."""
    for setting, sigma in outcome.groups():
        for this, baseline in outcome.differences:
            found = paired_gain(outcome.of(setting, sigma, this), outcome.of(setting, sigma, baseline))
            if found is not None:
                yield setting, sigma, this, baseline, found


def pair_title(outcome: Outcome, this: str, baseline: str) -> str:
    """An arm and its baseline; what stands before a colon in both ("Gaussian: SOME") is said once."""
    one, other = outcome.arms[this], outcome.arms[baseline]
    front, colon, _ = one.partition(": ")
    return f"{one} − {other.removeprefix(front + colon) if colon else other}"


def paired_gain(
    this: Mapping[int, Result], baseline: Mapping[int, Result], of: str = "certified_radius"
) -> Gain | None:
    """Over the seeds that both have on the same images; none if there is none. The log of another has other
    noise, and other networks than ours: the two are no pair."""
    seeds = sorted(seed for seed in this.keys() & baseline.keys() if _comparable(this[seed], baseline[seed]))
    if not seeds:
        return None
    return gain(*(stacked([arm[seed] for seed in seeds], of) for arm in (this, baseline)))


def stacked(results: list[Result], of: str = "certified_radius") -> Floats:
    """A column of the measurements, by default the certified radii, [seeds, images]."""
    return np.stack([getattr(each, of) for each in measured(results)])


def acr(results: list[Result]) -> Estimate:
    """With its standard error, over seeds where there are several, else over images."""
    radii = stacked(results)
    return mean(radii.mean(1)) if len(radii) > 1 else mean(radii[0])


def certified_accuracy(results: list[Result], radius: float) -> float:
    """In per cent, over all images and seeds."""
    right = stacked(results, "prediction") == stacked(results, "label")
    return 100 * float((right & (stacked(results, "radius") >= radius)).mean())


def classes_certified(results: list[Result]) -> Cell:
    """The mean over seeds."""
    found = [
        metrics.classes_certified(each.label, each.prediction == each.label) for each in measured(results)
    ]
    return classes(float(np.mean([count for count, _ in found])), max(there for _, there in found))


def interval(shown: Interval | None, sign: str = "+") -> Cell:
    """Of differences; of what has no sign, without one."""
    if shown is None:
        return NONE
    return Cell(f"[{shown.low:{sign}.4f}, {shown.high:{sign}.4f}]", tuple(shown))


def _comparable(one: Result, other: Result) -> bool:
    a, b = measured([one, other])
    same_images = np.array_equal(a.index, b.index) and np.array_equal(a.label, b.label)
    return same_images and ("imported" in one.facts) == ("imported" in other.facts)


def _name(outcome: Outcome, setting: str, title: str, name: str) -> Cell:
    """With its setting in front, if there are several."""
    front = f"{setting}: " if outcome.several else ""
    return Cell(front + title, front + name)


def _arm_row(outcome: Outcome, setting: str, sigma: float, arm: str) -> tuple[Cell, ...]:
    results = list(outcome.of(setting, sigma, arm).values())
    head = (_name(outcome, setting, outcome.arms[arm], arm), number(sigma, "g"))
    if not results:
        state = "failed" if outcome.has_failed(setting, sigma, arm) else "not yet"
        return (*head, word(state), *[NONE] * (5 + len(outcome.radii)))
    radius, error = acr(results)
    shares = [certified_accuracy(results, r) for r in outcome.radii]
    noisy = float(np.mean([np.mean(each.noisy) for each in measured(results)]))
    return (
        *head,
        number(len(results), "d"),
        Cell(f"{radius:.4f}", radius, f"±{error:.4f}", error),
        *(number(share, ".1f") for share in shares),
        classes_certified(results),
        NONE if np.isnan(noisy) else number(100 * noisy, ".1f"),
        _mean([each.facts.get("loss") for each in results], ".3f"),
        _mean([_per_cent(each.facts.get("easy")) for each in results], ".0f"),
    )


def _per_cent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _mean(values: list[float | None], form: str) -> Cell:
    known = [value for value in values if value is not None]
    return number(float(np.mean(known)) if known else None, form)
