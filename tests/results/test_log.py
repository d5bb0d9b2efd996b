from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

from smoothheads.certify.theorem import UNIFORM
from smoothheads.results.cohen import read_log
from smoothheads.types import Votes


def test_label_probability_from_votes_and_from_radii(run: Callable[..., Path]) -> None:
    log = read_log(run())
    shares = log.label_probability()
    assert shares is not None
    first = log.rows[0].votes
    assert first is not None
    assert shares[0] == first.of("ensemble")[log.label[0]] / first.n
    bare = replace(log, rows=())
    bound = bare.label_probability()
    assert bound is not None
    assert np.all(bound <= shares)  # a lower bound where it is known, 0 elsewhere
    assert bound[0] == pytest.approx(norm.cdf(log.radius[0] / 0.5))
    assert replace(bare, sigma=None).label_probability() is None


def test_another_rule_has_its_own_votes(run: Callable[..., Path]) -> None:
    log = read_log(run())
    other = replace(log, manifest=log.manifest | {"rule": "head-2"})
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
    assert first.selection is not None
    none = replace(first, votes=Votes.none(first.selection.rules, 4), n=0)
    shares = replace(log, rows=(none, *log.rows[1:])).label_probability()
    assert shares is not None
    assert shares[0] == first.selection.of()[first.label] / 20


def test_the_norm_is_the_noise_s_unless_the_radii_were_converted(run: Callable[..., Path]) -> None:
    log = read_log(run(noise="uniform"))
    assert (log.norm, log.theorem) == ("l1", UNIFORM)
    assert read_log(run("other")).norm == "l2"
    assert replace(log, manifest={}).norm == "l2"  # foreign
    assert replace(log, manifest=log.manifest | {"norm": "linf"}).norm == "linf"


def test_without_votes_a_ledger_still_has_its_bounds(run: Callable[..., Path]) -> None:
    log = read_log(run(noise="laplace"))
    bare = replace(log, rows=tuple(replace(row, votes=None) for row in log.rows))
    bounds = bare.label_probability()
    assert bounds is not None
    assert bounds.tolist() == [row.p_lower if row.correct else 0.0 for row in log.rows]
