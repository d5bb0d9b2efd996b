"""The tables of a study: the numbers of every arm over images and seeds, differences, and cost."""

from __future__ import annotations

import numpy as np

from smoothheads.report.table import NONE, Cell, Table, number, word
from smoothheads.report.tables import CLASSES, classes
from smoothheads.results import metrics
from smoothheads.results.metrics import Interval
from smoothheads.studies.results import Stack, StudyResults
from smoothheads.studies.statistics import gains

ONE_SEED = Cell("one seed")
"""Stands where an interval over seeds would be: the row is about these networks alone."""


def all_tables(study: StudyResults) -> list[Table]:
    return [headline(study), differences(study)]


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
    """What every arm cost here: means over seeds, of one member where several were trained separately."""
    rows = []
    for setting, sigma in study.groups():
        for arm, title in study.arms.items():
            if stack := study.arm(setting, sigma, arm):
                samples = [each.samples.mean() for each in stack.results if each.samples is not None]
                seconds = float(np.mean([each.seconds.mean() for each in stack.results]))
                size = stack.size
                rows.append(
                    (
                        Cell(" ".join(filter(None, (setting, title))), f"{setting} {arm}".strip()),
                        number(sigma, "g"),
                        number(size.params if size else None, ",.0f"),
                        number(size.gmacs if size else None, ".4f"),
                        number(stack.mean_fact("epoch_seconds"), ".2f"),
                        number(stack.mean_fact("train_peak_mib"), ".0f"),
                        number(float(np.mean(samples)), ",.0f") if samples else NONE,
                        number(seconds, ".3f"),
                        number(stack.mean_fact("certify_peak_mib"), ".0f"),
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
            "Seconds of the clock with one thread, on a machine that may have been busy; MiB: peak of the "
            "process; samples: per image. A row from another's ledger has that one's certification cost.",
            *([f"Processors, where a row notes them: {', '.join(processors)}."] if processors else []),
        ),
    )


def pair_title(study: StudyResults, this: str, baseline: str) -> str:
    """Names an arm and its baseline; what stands before a colon in both ("Gaussian: SOME") appears once."""
    one, other = study.arms[this], study.arms[baseline]
    front, colon, _ = one.partition(": ")
    return f"{one} − {other.removeprefix(front + colon) if colon else other}"


def classes_certified(stack: Stack) -> Cell:
    """Mean over seeds of the number of classes with a certificate."""
    found = [metrics.classes_certified(each.label, each.correct) for each in stack.results]
    return classes(float(np.mean([count for count, _ in found])), max(total for _, total in found))


def interval(shown: Interval | None, sign: str = "+") -> Cell:
    if shown is None:
        return NONE
    return Cell(f"[{shown.low:{sign}.4f}, {shown.high:{sign}.4f}]", tuple(shown))


def _name(study: StudyResults, setting: str, title: str, name: str) -> Cell:
    front = f"{setting}: " if study.several_settings else ""
    return Cell(front + title, front + name)
