"""The tables of a study: the numbers of every arm over images and seeds, differences, and cost."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from smoothheads.report.table import NONE, Cell, Table, interval, number, word
from smoothheads.report.tables import CLASSES, class_cells, class_rows, classes
from smoothheads.results import metrics
from smoothheads.results.compare import Bootstrapped, summarize_classes
from smoothheads.studies.results import RowFacts, Stack, StudyResults
from smoothheads.studies.statistics import gains
from smoothheads.types import ENSEMBLE

RESAMPLES = 400
"""Bootstrap samples of the class statistics."""
ONE_SEED = Cell("one seed")
"""Stands where an interval over seeds would be: the row is about these networks alone."""


def all_tables(study: StudyResults) -> list[Table]:
    return [headline(study), class_table(study), differences(study)]


def headline(study: StudyResults) -> Table:
    """Returns ACR and certified accuracy of every arm in every setting and at every sigma that it has."""
    cells = {row.cell for row in study.rows}
    rows = []
    for (setting, sigma), arm in itertools.product(study.groups(), study.arms):
        if (setting, sigma, arm) not in cells:
            continue
        stack = study.arm(setting, sigma, arm)
        head = (_name(study, setting, study.arms[arm], arm), number(sigma, "g"))
        if not stack:
            state = "failed" if study.has_failed(setting, sigma, arm) else "not yet"
            rows.append((*head, word(state), *[NONE] * (5 + len(study.radii))))
            continue
        acr, error = stack.acr
        noisy = [each.noisy.mean() for each in stack.results if each.noisy is not None]
        rows.append(
            (
                *head,
                number(len(stack), "d"),
                Cell(f"{acr:.4f}", acr, f"±{error:.4f}", error),
                *(number(stack.certified_accuracy(radius), ".1f") for radius in study.radii),
                classes_certified(stack),
                number(100 * float(np.mean(noisy)) if noisy else None, ".1f"),
                number(stack.mean_fact("loss"), ".3f"),
                number(stack.mean_fact("easy_fraction"), ".0f", 100),
            )
        )
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


def class_table(study: StudyResults) -> Table:
    """Returns how evenly the classes are served: one row per arm, setting and sigma."""
    radii = tuple(radius for radius in study.radii if radius > 0)[:2]
    rows = []
    for setting, sigma, arm, stack in _stacks(study):
        # The mean over the seeds, in the images themselves and in every bootstrap sample of them.
        classes = [summarize_classes(each, radii, resamples=RESAMPLES) for each in stack.results]
        draws = np.mean([each.draws for each in classes], axis=0)
        intervals = metrics.percentiles(draws[1:])
        numbers = [Bootstrapped(*each) for each in zip(draws[0].tolist(), intervals, strict=True)]
        worst = " ".join(str(each.worst) for each in classes)
        name = _name(study, setting, study.arms[arm], arm)
        rows.append((name, number(sigma, "g"), *class_cells(word(worst), classes[0].present, numbers)))
    note = (
        "worst: the class with the smallest ACR, of each seed; spread: largest minus smallest class ACR; "
        "worst at r: the smallest certified accuracy (%) of a class. Means over seeds, with bootstrap "
        "intervals over images; a smallest value of many tends to lie at the upper end of its interval."
    )
    return class_rows(("arm", "sigma"), radii, rows, note)


def _stacks(study: StudyResults) -> Iterator[tuple[str, float, str, Stack]]:
    """Yields setting, sigma, arm and certified rows of everything that has some."""
    for setting, sigma in study.groups():
        for arm in study.arms:
            if stack := study.arm(setting, sigma, arm):
                yield setting, sigma, arm, stack


def differences(study: StudyResults) -> Table:
    """Returns what each arm gains in ACR on its baseline, paired over images, noise and seeds."""
    rows = [
        (
            _name(study, setting, pair_title(study, this, baseline), f"{this} - {baseline}"),
            number(sigma, "g"),
            number(gain.value, "+.4f"),
            word(gain.verdict),
            interval(gain.seeds, "+.4f") if gain.seeds else ONE_SEED,
            interval(gain.images, "+.4f"),
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
    """Returns what every arm cost here, as means over seeds; networks that are trained separately add up."""
    ensembles = {row.facts.certification for row in study.certified if row.facts.aggregation == ENSEMBLE}
    rows = []
    for setting, sigma, arm, stack in _stacks(study):
        samples = [each.samples.mean() for each in stack.results if each.samples is not None]
        seconds = float(np.mean([each.seconds.mean() for each in stack.results]))
        size, epoch = stack.size, stack.mean_fact("epoch_seconds")
        # A row that is read from the ledger of an ensemble has no certification of its own to time.
        borrowed = any(
            facts.aggregation != ENSEMBLE and facts.certification in ensembles for facts in stack.facts
        )
        networks = max(_networks(facts) for facts in stack.facts)
        rows.append(
            (
                Cell(" ".join(filter(None, (setting, study.arms[arm]))), f"{setting} {arm}".strip()),
                number(sigma, "g"),
                number(size.params if size else None, ",.0f"),
                number(size.gmacs if size else None, ".4f"),
                number(epoch and networks * epoch, ".2f"),
                number(stack.mean_fact("train_peak_mib"), ".0f"),
                number(float(np.mean(samples)) if samples else None, ",.0f"),
                number(None if borrowed else seconds, ".3f"),
                number(None if borrowed else stack.mean_fact("certify_peak_mib"), ".0f"),
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
    # A row read from the ledger of an ensemble: one member of it, or its first K.
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
    """Returns the mean over seeds of the number of classes with a certificate."""
    certified = float(np.mean([each.certified_classes for each in stack.results]))
    return classes(certified, max(len(each.class_acr) for each in stack.results))


def _name(study: StudyResults, setting: str, title: str, name: str) -> Cell:
    front = f"{setting}: " if study.several_settings else ""
    return Cell(front + title, front + name)
