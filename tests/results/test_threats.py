"""Other threats from a ledger: verify_row by hand, and refused where the votes do not allow them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from smoothheads.certify.bounds import clopper_pearson_lower, clopper_pearson_upper
from smoothheads.certify.threats import linf_radius_uniform, top_k_radius
from smoothheads.errors import ConfigError, LedgerError
from smoothheads.results.derive import linf, top_k
from smoothheads.results.manifest import Manifest
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.types import ABSTAIN, Certificate, Certified, Counts, Votes

Run = Callable[..., Path]
SHAPE = (3, 4, 4)


def told(log: Results, **changes: Any) -> Manifest:
    """Its manifest, with other settings."""
    assert log.manifest is not None
    return replace(log.manifest, certify=log.manifest.certify.changed(**changes))


def test_linf_balls_lie_inside_the_l2_balls(run: Run) -> None:
    log = read_log(run(shape=SHAPE))
    found = linf(log)
    assert found.norm == "linf"
    np.testing.assert_allclose(found.radius, log.radius / math.sqrt(48), rtol=1e-11)
    assert (found.radius * math.sqrt(48) <= log.radius).all()
    assert (found.prediction == log.prediction).all()
    assert (linf(read_log(run("bare")), dimension=48).radius == found.radius).all()


def test_linf_of_l1_ledgers(run: Run) -> None:
    """Uniform noise proves more than the cube inside its l1 ball, Laplace noise no more."""
    laplace, uniform = (read_log(run(noise, noise=noise, shape=SHAPE)) for noise in ("laplace", "uniform"))
    np.testing.assert_allclose(linf(laplace).radius, laplace.radius / 48, rtol=1e-11)
    expected = [
        0.0 if row.abstained else linf_radius_uniform(row.certificate.p_lower, 0.5, 48)
        for row in uniform.rows
    ]
    assert linf(uniform).radius.tolist() == expected
    assert (linf(uniform).radius >= uniform.radius / 48 * (1 - 1e-9)).all()


def test_linf_needs_the_shape_and_an_unconverted_log(run: Run) -> None:
    log = read_log(run())
    with pytest.raises(ConfigError, match="run does not state the shape of its images; give the dimension"):
        linf(log)
    with pytest.raises(LedgerError, match="run has linf radii, not l2"):
        linf(linf(log, dimension=48), dimension=48)


def test_top_k_by_hand(run: Run) -> None:
    log = read_log(run())
    for k in (1, 2, 3):
        found = top_k(log, k)
        for i in (0, 5, 11):
            row, votes = log.rows[i], log.rows[i].votes
            counts = votes.for_aggregation()
            p_lower = clopper_pearson_lower(int(counts[row.label]), votes.n, 0.001 / 4)
            others = [clopper_pearson_upper(int(c), votes.n, 0.001 / 4) for c in np.delete(counts, row.label)]
            assert found.radius[i] == top_k_radius(p_lower, others, k, 0.5)
            assert found.prediction[i] == (row.label if found.radius[i] > 0 else ABSTAIN)


def test_more_places_are_easier_to_keep(run: Run) -> None:
    log = read_log(run())
    first, second, third = (top_k(log, k).radius for k in (1, 2, 3))
    assert (first <= second).all()
    assert (second <= third).all()
    assert (third > first).any()


def test_the_correction_of_the_noise_is_paid_by_every_bound(run: Run) -> None:
    log = read_log(run())
    inexact = replace(log, manifest=replace(told(log), correction=0.01))
    plain, corrected = top_k(log, 2), top_k(inexact, 2)
    assert (corrected.radius <= plain.radius).all()
    assert (corrected.radius < plain.radius).any()


def test_top_k_is_refused_where_the_votes_do_not_allow_it(run: Run) -> None:
    log = read_log(run())
    foreign = replace(log, rows=(), manifest=None)
    with pytest.raises(LedgerError, match="selection and estimation votes"):
        top_k(foreign, 2)
    with pytest.raises(LedgerError, match="Top-k is known for Gaussian noise only; uniform has l1 radii"):
        top_k(read_log(run("uniform", noise="uniform")), 2)
    sequential = replace(log, manifest=told(log, budget="table"))
    with pytest.raises(LedgerError, match="budget table stops because of its votes"):
        top_k(sequential, 2)
    for k in (0, 4):
        with pytest.raises(ConfigError, match="1 <= k <= "):
            top_k(log, k)


def test_hopeless_images_of_the_radius_budget_certify_nothing(run: Run) -> None:
    log = read_log(run())
    none = replace(log.rows[0], votes=Votes.zeros(("ensemble", "head-1", "head-2"), 4))
    assert top_k(replace(log, rows=(none, *log.rows[1:])), 2).radius[0] == 0


def test_top_k_holds_as_often_as_promised(run: Run) -> None:
    """Votes with p = .4 for the label and .3, .2, .1 for others: the true radii are the published vector,
    up to the noise's worst case. A promise of error alpha is called broken at 1e-6."""
    alpha, shares, runs = 0.05, (0.4, 0.3, 0.2, 0.1), 600
    template = read_log(run())
    votes = np.random.default_rng(5).multinomial(300, shares, size=runs)
    rows = tuple(_row(template.rows[0], i, votes[i]) for i in range(runs))
    log = replace(_repeated(template, runs), rows=rows, alpha=alpha, sigma=1.0)
    for k in (1, 2, 3):
        truth = top_k_radius(0.4, shares[1:], k, 1.0) * (1 + 1e-9)
        radii = top_k(log, k).radius
        assert stats.binom.sf(int((radii > truth).sum()) - 1, runs, alpha) > 1e-6
    assert top_k(log, 3).radius.mean() > 0.3
    assert float(special.ndtri(0.4)) < 0  # CERTIFY itself would abstain on every one of these images


def _row(template: Certified, index: int, counts: Counts) -> Certified:
    votes = Votes(("ensemble", "head-1", "head-2"), np.tile(counts, (3, 1)))
    certificate = Certificate(ABSTAIN, 0.0, 0.0, 0, 300, template.certificate.n0)
    return replace(template, index=index, label=0, certificate=certificate, votes=votes)


def _repeated(log: Results, count: int) -> Results:
    return replace(log.take(np.zeros(count, dtype=np.int64)), label=np.zeros(count, dtype=np.int64))
