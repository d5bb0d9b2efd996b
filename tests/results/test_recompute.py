"""Stored votes against what is claimed of them, for every budget and bound."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from smoothheads.certify.algorithm import CertifyParams
from smoothheads.certify.config import CertifyConfig
from smoothheads.errors import SoundnessError
from smoothheads.results.row import contradiction, recompute
from smoothheads.types import ABSTAIN, Certified, Counts, Phase, Votes

AGGREGATIONS = ("ensemble",)
BUDGETS: dict[str, dict[str, Any]] = {
    "fixed": {},
    "table": {"budget": "table"},
    "table-aware": {"budget": "table", "label_aware": True},
    "radius": {"budget": "radius"},
    "radius-aware": {"budget": "radius", "label_aware": True},
    "anytime": {"budget": "anytime", "target": 0.3},
    "uniform": {"noise": "uniform", "budget": "table"},
    "laplace": {"noise": "laplace"},
}


def config_of(name: str) -> CertifyConfig:
    return CertifyConfig(sigma=0.5, seed=0, n=5000, **BUDGETS[name])


def certified(config: CertifyConfig, shares: tuple[float, ...], seed: int, correction: float) -> Certified:
    """As a run would keep it, with independent votes of known probabilities."""
    rng, taken = np.random.default_rng(seed), {phase: np.zeros(len(shares), np.int64) for phase in Phase}

    def sample(phase: Phase, count: int) -> Counts:
        votes = rng.multinomial(count, shares)
        taken[phase] += votes
        return votes

    budget = config.plan
    params = CertifyParams(
        sigma=config.sigma,
        alpha=config.alpha,
        law=config.law,
        correction=correction,
        label=0 if budget.uses_label else None,
    )
    certificate = budget.certify(sample, params)
    selection = Votes(AGGREGATIONS, (taken[Phase.SELECTION] + taken[Phase.PILOT])[None])
    return Certified(seed, 0, certificate, selection, Votes(AGGREGATIONS, taken[Phase.ESTIMATION][None]))


@pytest.mark.parametrize("name", BUDGETS)
@pytest.mark.parametrize("p", [0.3, 0.52, 0.6, 0.75, 0.9, 0.99, 1.0])
def test_what_a_run_keeps_never_contradicts_itself(name: str, p: float) -> None:
    config, correction = config_of(name), 1e-9
    for seed in range(15):
        record = certified(config, (p, 0.7 * (1 - p), 0.3 * (1 - p)), seed, correction)
        follows = recompute(config, record, correction)
        assert contradiction(record.certificate, follows) is None
        if name in ("fixed", "radius", "radius-aware", "laplace"):
            assert follows == record.certificate


def damaged(record: Certified, **changes: Any) -> Certified:
    return replace(record, certificate=replace(record.certificate, **changes))


@pytest.mark.parametrize("name", BUDGETS)
def test_claims_beyond_the_votes_are_named(name: str) -> None:
    config = config_of(name)
    record = certified(config, (0.95, 0.05, 0.0), 1, 0.0)
    certificate = record.certificate
    assert certificate.radius > 0
    changes: tuple[dict[str, Any], ...] = (
        {"radius": certificate.radius + 1e-5},
        {"radius": 1.25},
        {"k": certificate.k + 1},
        {"n": certificate.n + 100},
        {"n0": certificate.n0 + 1},
        {"prediction": 1},
    )
    changes += ({"p_lower": certificate.p_lower + 1e-6}, {"p_lower": 0.0, "radius": 0.0})
    for change in changes:
        wrong = damaged(record, **change)
        assert contradiction(wrong.certificate, recompute(config, wrong, 0.0)), change


@pytest.mark.parametrize("name", BUDGETS)
def test_27_of_100_votes_show_no_radius(name: str) -> None:
    config = config_of(name)
    config = config.changed(n=100) if config.budget != "table" else config.changed(radii=(0.0, 1.25))
    record = certified(config, (0.27, 0.73, 0.0), 3, 0.0)
    counts = np.array([[27, 73, 0]])
    selection = np.array([[500, 0, 0]]) if config.budget == "radius" else np.array([[100, 0, 0]])
    if config.plan.uses_label and config.budget == "table":
        selection = np.zeros((1, 3), np.int64)
    record = replace(record, votes=Votes(AGGREGATIONS, counts), selection=Votes(AGGREGATIONS, selection))
    follows = recompute(config, record, 0.0)
    assert (follows.prediction, follows.radius, follows.k, follows.n) == (ABSTAIN, 0.0, 27, 100)
    claimed = replace(follows, prediction=0, radius=1.25, p_lower=0.99)
    assert "radius 1.25" in str(contradiction(claimed, follows))


def test_table_that_would_have_ended_before_is_refused() -> None:
    """270 of 1000 hits may hide 200 of 200, but nobody goes on for 800 more without a hit among ten."""
    config = config_of("table")
    record = certified(config, (0.6, 0.4), 0, 0.0)
    for n in range(900, 1300, 100):
        votes = Votes(AGGREGATIONS, np.array([[int(0.27 * n), n - int(0.27 * n)]]))
        with pytest.raises(SoundnessError, match="does not end after"):
            recompute(config, replace(record, votes=votes), 0.0)


@pytest.mark.parametrize("name", BUDGETS)
def test_votes_that_were_never_asked_for_are_refused(name: str) -> None:
    config = config_of(name)
    record = certified(config, (0.9, 0.1), 2, 0.0)
    assert record.certificate.n > 0
    short = Votes(AGGREGATIONS, record.votes.counts - np.array([[1, 0]]))
    negative = Votes(AGGREGATIONS, record.votes.counts + np.array([[5001, -5001]]))
    fewer = Votes(AGGREGATIONS, record.selection.counts + np.array([[1, 0]]))
    for wrong in (replace(record, votes=negative), replace(record, selection=fewer)):
        with pytest.raises(SoundnessError):
            recompute(config, wrong, 0.0)
    if config.budget != "radius":
        with pytest.raises(SoundnessError):
            recompute(config, replace(record, votes=short), 0.0)


def test_label_beyond_the_classes_is_refused() -> None:
    config = config_of("table-aware")
    record = certified(config, (0.9, 0.1), 2, 0.0)
    for label in (-1, 2):
        with pytest.raises(SoundnessError, match=r"Label .* is none of 2 classes"):
            recompute(config, replace(record, label=label), 0.0)
