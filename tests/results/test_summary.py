from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothheads.certify.radius import max_radius
from smoothheads.noise import NOISES
from smoothheads.results.read import read_log
from smoothheads.results.compare import summarize


def test_a_ledger_tells_everything(run: Callable[..., Path]) -> None:
    log = read_log(run())
    summary = summarize(log)
    shares = log.label_probability()
    assert shares is not None
    assert summary.images == 12
    assert summary.acr.value == pytest.approx(np.mean(log.radius * log.correct))
    assert summary.radii == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert [e.value for e in summary.certified] == [
        np.mean(log.correct & (log.radius >= r)) for r in summary.radii
    ]
    assert summary.accuracy == summary.certified[0].value
    assert summary.noisy_accuracy is not None
    assert summary.noisy_accuracy.value == pytest.approx(shares.mean())
    assert summary.hard_accuracy is not None
    assert summary.hard_accuracy.value == pytest.approx(np.sort(shares)[:6].mean())
    assert summary.ceiling == max_radius(1000, 0.001, 0.5)
    assert summary.at_ceiling == pytest.approx(1 / 12)  # only index 0 has every vote
    assert summary.samples == (1020, 0)
    assert summary.seconds.value == pytest.approx(np.mean(0.25 + np.arange(0, 60, 5)))


def test_a_foreign_log_says_what_it_does_not_know(run: Callable[..., Path]) -> None:
    bare = read_log(run()).without_votes(n=None, alpha=None)
    summary = summarize(bare, [0, 0.5])
    unknown = (summary.noisy_accuracy, summary.hard_accuracy, summary.ceiling)
    assert (*unknown, summary.at_ceiling, summary.samples) == (None,) * 5
    assert summary.radii == (0, 0.5)


@pytest.mark.parametrize("noise", ["uniform", "laplace"])
def test_the_ceiling_is_that_of_the_noise(run: Callable[..., Path], noise: str) -> None:
    """Under uniform noise the radii near the ceiling lie close together; six decimals tell them apart."""
    log = read_log(run(noise=noise))
    summary = summarize(log)
    assert summary.ceiling == max_radius(1000, 0.001, 0.5, NOISES.get(noise)().radius)
    assert summary.at_ceiling == pytest.approx(1 / 12)
    converted = replace(log, norm="linf")
    assert summarize(converted).ceiling is None
