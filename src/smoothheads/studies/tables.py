"""The tables of a study: the numbers of every arm over images and seeds, differences, and cost."""

from __future__ import annotations

from collections import Counter

import numpy as np

from smoothheads.report.table import NONE, Cell, Table, number, word
from smoothheads.report.tables import CLASSES, classes
from smoothheads.results import metrics
from smoothheads.results.metrics import Interval
from smoothheads.studies.results import RowFacts, Stack, StudyResults
from smoothheads.studies.statistics import gains

RESAMPLES = 400
"""Bootstrap samples of the class statistics."""
ONE_SEED = Cell("one seed")
"""Stands where an interval over seeds would be: the row is about these networks alone."""


def all_tables(study: StudyResults) -> list[Table]:
    return [headline(study), class_table(study), differences(study)]


def headline(study: StudyResults) -> Table:
    """ACR and certified accuracy of every arm in every setting and at every sigma that it has."""
    cells = {row.cell for row in study.rows}
    rows = [
        _arm_row(study, setting, sigma, arm)
        for setting, sigma in study.groups()
        for arm in study.arms
        if (setting, sigma, arm) in cells
    ]
    return Table(
        title=study.title,
        columns=(
            *("arm", "sigma", "seeds", "ACR"),
            *(f"{radius:.2f}" for radius in study.radii),
            *("classes", "noisy", "loss", "easy"),
        ),
        rows=tuple(rows),
        notes=(
            "ACR with its standard error, over seeds if there are several, else over images; certified "
            "accuracy (%) at the radii; noisy: noisy samples classified correctly (%); loss: of training, "
            "last epoch; easy: training images whose loss was at most the arm's lambda in the last epoch "
            "(%), whether it was used or not.",
            CLASSES,
            *(f"failed: {name}: {message}" for name, message in study.failed.items()),
        ),
    )


def _arm_row(study: StudyResults, setting: str, sigma: float, arm: str) -> tuple[Cell, ...]:
    stack = study.arm(setting, sigma, arm)
    head = (_name(study, setting, study.arms[arm], arm), number(sigma, "g"))
    if not stack:
        state = "failed" if study.has_failed(setting, sigma, arm) else "not yet"
        return (*head, word(state), *[NONE] * (5 + len(study.radii)))
    acr, error = stack.acr
    known = [each.noisy.mean() for each in stack.results if each.noisy is not None]
    return (
        *head,
        number(len(stack), "d"),
        Cell(f"{acr:.4f}", acr, f"±{error:.4f}", error),
        *(number(stack.certified_accuracy(radius), ".1f") for radius in study.radii),
        classes_certified(stack),
        number(100 * float(np.mean(known)), ".1f") if known else NONE,
        number(stack.mean_fact("loss"), ".3f"),
        number(stack.mean_fact("easy_fraction"), ".0f", 100),
    )


def class_table(study: StudyResults) -> Table:
    """How evenly the classes are served, which ACR does not show: one row per arm, setting and sigma."""
    rows = []
    for setting, sigma in study.groups():
        for arm, title in study.arms.items():
            if stack := study.arm(setting, sigma, arm):
                label = stack.results[0].label
                per_seed = [
                    metrics.class_statistics(
                        label,
                        each.certified_radius,
                        metrics.certified(each.correct, each.radius, (0.0, *_class_radii(study))),
                        np.random.default_rng(0),  # the same draws for all seeds and arms
                        resamples=RESAMPLES,
                    )
                    for each in stack.results
                ]
                statistics = np.mean(per_seed, axis=0)
                intervals = metrics.percentiles(statistics[1:])
                certified, worst, spread, *accuracy = zip(statistics[0], intervals, strict=True)
                names = [str(each.worst_class) for each in stack.results]
                rows.append(
                    (
                        _name(study, setting, title, arm),
                        number(sigma, "g"),
                        _bootstrapped(*certified, "g", end=f"/{len(np.unique(label))}"),
                        word(" ".join(names)),
                        _bootstrapped(*worst, ".3f"),
                        _bootstrapped(*spread, ".3f"),
                        *(_bootstrapped(*each, ".1f", 100) for each in accuracy),
                    )
                )
    return Table(
        title="How evenly the classes are served",
        columns=(
            *("arm", "sigma", "classes", "worst", "worst ACR", "spread"),
            *(f"worst at {radius:.2f}" for radius in _class_radii(study)),
        ),
        rows=tuple(rows),
        notes=(
            CLASSES,
            "worst: the class with the smallest ACR, of each seed; spread: largest minus smallest class ACR; "
            "worst at r: the smallest certified accuracy (%) of a class. Means over seeds, with bootstrap "
            "intervals over images; a smallest value of many tends to lie at the upper end of its interval.",
        ),
    )


def _class_radii(study: StudyResults) -> tuple[float, ...]:
    return tuple(radius for radius in study.radii if radius > 0)[:2]


def _bootstrapped(value: float, bounds: Interval, form: str, scale: float = 1, end: str = "") -> Cell:
    def shown(number: float) -> str:
        return format(round(scale * number, 1) if form == "g" else scale * number, form)

    return Cell(f"{shown(value)}{end}", value, f"[{shown(bounds.low)}, {shown(bounds.high)}]")


def differences(study: StudyResults) -> Table:
    """What each arm gains in ACR on its baseline, paired over images, noise and seeds."""
    rows = [
        (
            _name(study, setting, pair_title(study, this, baseline), f"{this} - {baseline}"),
            number(sigma, "g"),
            number(gain.value, "+.4f"),
            word(gain.verdict),
            interval(gain.seeds) if gain.seeds else ONE_SEED,
            interval(gain.images),
            Cell(" ".join(f"{value:+.3f}" for value in gain.per_seed), gain.per_seed),
        )
        for setting, sigma, this, baseline, gain in gains(study)
    ]
    return Table(
        title="Gains in ACR, paired over images, noise and seeds",
        columns=("gain", "sigma", "ACR", "above 0?", "95 % seeds and images", "95 % images", "per seed"),
        rows=tuple(rows),
        notes=(
            "images: bootstrap; seeds and images: both as crossed random effects. Each interval is for its "
            "own gain, without a correction for their number.",
        ),
    )


def costs(study: StudyResults) -> Table:
    """What every arm cost here, as means over seeds; networks that are trained separately add up."""
    rows = []
    ledgers = Counter(
        (row.facts.certification, row.facts.aggregation == "ensemble") for row in study.certified
    )
    for setting, sigma in study.groups():
        for arm, title in study.arms.items():
            if stack := study.arm(setting, sigma, arm):
                samples = [each.samples.mean() for each in stack.results if each.samples is not None]
                seconds = float(np.mean([each.seconds.mean() for each in stack.results]))
                size = stack.size
                # A row that is read from the ledger of an ensemble has no certification of its own to time.
                borrowed = any(
                    facts.aggregation != "ensemble" and ledgers[facts.certification, True]
                    for facts in stack.facts
                )
                epoch = stack.mean_fact("epoch_seconds")
                networks = max(_networks(facts) for facts in stack.facts)
                rows.append(
                    (
                        Cell(" ".join(filter(None, (setting, title))), f"{setting} {arm}".strip()),
                        number(sigma, "g"),
                        number(size.params if size else None, ",.0f"),
                        number(size.gmacs if size else None, ".4f"),
                        number(None if epoch is None else networks * epoch, ".2f"),
                        number(stack.mean_fact("train_peak_mib"), ".0f"),
                        number(float(np.mean(samples)), ",.0f") if samples else NONE,
                        NONE if borrowed else number(seconds, ".3f"),
                        NONE if borrowed else number(stack.mean_fact("certify_peak_mib"), ".0f"),
                    )
                )
    processors = sorted({name for row in study.rows for name in row.facts.processors})
    return Table(
        title="Cost",
        columns=(
            *("arm", "sigma", "params", "GMACs"),
            *("s / epoch", "train MiB", "samples", "s / image", "certify MiB"),
        ),
        rows=tuple(rows),
        notes=(
            "GMACs: multiply-accumulates of convolutions and linear layers for one image, in billions.",
            "Seconds of the clock with one thread, on a machine that may have been busy; of an ensemble of "
            "separate networks, the sum over them. MiB: peak of a process; samples: per image. – for the "
            "certification of a row that was read from the ledger of a larger ensemble.",
            *([f"Processors, where a row notes them: {', '.join(processors)}."] if processors else []),
        ),
    )


def _networks(facts: RowFacts) -> int:
    """Returns how many separately trained networks a row consists of."""
    kind, _, count = facts.aggregation.partition("-")
    if len(facts.weights) > 1 and kind in ("head", "prefix"):
        return 1 if kind == "head" else int(count)
    return max(1, len(facts.weights))


def pair_title(study: StudyResults, this: str, baseline: str) -> str:
    """Names an arm and its baseline; what stands before a colon in both ("Gaussian: SOME") appears once."""
    one, other = study.arms[this], study.arms[baseline]
    front, colon, _ = one.partition(": ")
    return f"{one} − {other.removeprefix(front + colon) if colon else other}"


def classes_certified(stack: Stack) -> Cell:
    """Mean over seeds of the number of classes with a certificate."""
    certified = float(np.mean([each.certified_classes for each in stack.results]))
    return classes(certified, max(len(each.class_acr) for each in stack.results))


def interval(shown: Interval | None, sign: str = "+") -> Cell:
    if shown is None:
        return NONE
    return Cell(f"[{shown.low:{sign}.4f}, {shown.high:{sign}.4f}]", tuple(shown))


def _name(study: StudyResults, setting: str, title: str, name: str) -> Cell:
    front = f"{setting}: " if study.several_settings else ""
    return Cell(front + title, front + name)
