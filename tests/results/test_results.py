from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from smoothheads.noise import Uniform
from smoothheads.results.manifest import Manifest
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.types import Votes


def told(log: Results, **changes: Any) -> Manifest:
    """Its manifest, with other settings."""
    assert log.manifest is not None
    return replace(log.manifest, certify=replace(log.manifest.certify, **changes))


def test_label_probability_from_votes_and_from_radii(run: Callable[..., Path]) -> None:
    log = read_log(run())
    shares = log.label_probability()
    assert shares is not None
    first = log.rows[0].votes
    assert first is not None
    assert shares[0] == first.for_rule("ensemble")[log.label[0]] / first.n
    bare = replace(log, rows=())
    bound = bare.label_probability()
    assert bound is not None
    assert np.all(bound <= shares)  # a lower bound where it is known, 0 elsewhere
    assert bound[0] == pytest.approx(norm.cdf(log.radius[0] / 0.5))
    assert replace(bare, sigma=None).label_probability() is None


def test_another_rule_has_its_own_votes(run: Callable[..., Path]) -> None:
    log = read_log(run())
    other = replace(log, manifest=told(log, rule="head-2"))
    votes = log.rows[4].votes
    assert votes is not None
    shares = other.label_probability()
    assert shares is not None
    assert shares[4] == votes.counts[2, log.label[4]] / votes.n


def test_take_keeps_everything_together(run: Callable[..., Path]) -> None:
    part = read_log(run()).take(np.array([7, 2]))
    assert part.index.tolist() == [35, 10]
    assert [row.index for row in part.rows] == [35, 10]
    assert part.columns["idx"] == ("35", "10")


def test_samples_count_both_phases(run: Callable[..., Path]) -> None:
    log = read_log(run())
    assert log.samples is not None
    assert log.samples.tolist() == [1020] * 12
    foreign = replace(log, rows=(), n=None)
    assert foreign.samples is None
    stated = replace(foreign, n=100_000, n0=None).samples
    assert stated is not None
    assert stated[0] == 100_000


def test_an_image_without_estimation_votes_counts_its_selection(run: Callable[..., Path]) -> None:
    log = read_log(run())
    first = log.rows[0]
    none = replace(first, votes=Votes.zeros(first.selection.rules, 4))
    shares = replace(log, rows=(none, *log.rows[1:])).label_probability()
    assert shares is not None
    assert shares[0] == first.selection.for_rule()[first.label] / 20


def test_the_norm_is_the_noise_s_unless_the_radii_were_converted(run: Callable[..., Path]) -> None:
    log = read_log(run(noise="uniform"))
    assert (log.norm, log.law) == ("l1", Uniform())
    assert read_log(run("other")).norm == "l2"
