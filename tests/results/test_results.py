from __future__ import annotations

import gzip
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from smoothheads.errors import ConfigError, LedgerError
from smoothheads.noise import Uniform
from smoothheads.results.manifest import Manifest
from smoothheads.results.read import read_log
from smoothheads.results.results import Results, stack
from smoothheads.types import ABSTAIN, Votes


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
    assert shares[0] == first.for_aggregation("ensemble")[log.label[0]] / first.n
    bare = log.without_votes()
    bound = bare.label_probability()
    assert bound is not None
    assert np.all(bound <= shares)  # a lower bound where it is known, 0 elsewhere
    assert bound[0] == pytest.approx(norm.cdf(log.radius[0] / 0.5))
    assert replace(bare, sigma=None).label_probability() is None


def test_another_rule_has_its_own_votes(run: Callable[..., Path]) -> None:
    log = read_log(run())
    other = Results.of("other", log.rows, told(log, aggregation="head-2"))
    votes = log.rows[4].votes
    assert votes is not None
    shares = other.label_probability()
    assert shares is not None
    assert shares[4] == votes.counts[2, log.label[4]] / votes.n


def test_take_keeps_everything_together(run: Callable[..., Path]) -> None:
    part = read_log(run()).take(np.array([7, 2]))
    assert part.index.tolist() == [35, 10]
    assert [row.index for row in part.rows] == [35, 10]


def test_samples_count_both_phases(run: Callable[..., Path]) -> None:
    log = read_log(run())
    assert log.samples is not None
    assert log.samples.tolist() == [1020] * 12
    foreign = log.without_votes(n=None)
    assert foreign.samples is None
    stated = replace(foreign, n=100_000, n0=None).samples
    assert stated is not None
    assert stated[0] == 100_000


def test_an_image_without_estimation_votes_counts_its_selection(run: Callable[..., Path]) -> None:
    log = read_log(run())
    first = log.rows[0]
    none = replace(first, votes=Votes.zeros(first.selection.aggregations, 4))
    assert log.manifest is not None
    shares = Results.of("again", (none, *log.rows[1:]), log.manifest)["noisy"]
    assert shares[0] == first.selection.for_aggregation()[first.label] / 20


def test_the_norm_is_the_noise_s_unless_the_radii_were_converted(run: Callable[..., Path]) -> None:
    log = read_log(run(noise="uniform"))
    assert (log.norm, log.law) == ("l1", Uniform())
    assert read_log(run("other")).norm == "l2"


def test_columns_rows_and_slices(run: Callable[..., Path]) -> None:
    log = read_log(run())
    assert log["radius"] is log.radius
    assert log["votes"].tolist() == [row.votes.for_aggregation().tolist() for row in log.rows]
    assert (log[-1].index, log[-1].votes) == (55, log.rows[-1].votes)
    assert log[2:4].index.tolist() == [row.index for row in log[2:4]] == [10, 15]
    assert log[np.array(log.correct)].correct.all()
    with pytest.raises(ConfigError, match="radius"):
        log["radii"]
    with pytest.raises(IndexError):
        log[12]
    with pytest.raises(LedgerError, match="Image 0 comes from a log without votes"):
        _ = log.without_votes()[0].votes


def test_metrics_of_the_classes() -> None:
    radius = np.array([0.4, 0.2, 0.1, 0.0, 0.0, 0.0])
    label, prediction = np.array([0, 0, 1, 1, 2, 2]), np.array([0, 0, 1, 0, ABSTAIN, 0])
    log = Results("log", np.arange(6), label, prediction, radius, np.ones(6))
    assert log.class_acr == pytest.approx({0: 0.3, 1: 0.05, 2: 0.0})
    assert log.class_certified_accuracy(0.2) == {0: 1.0, 1: 0.0, 2: 0.0}
    assert (log.worst_class, log.certified_classes) == (2, 2)
    assert log.acr == pytest.approx(0.7 / 6)
    assert len(repr(log).splitlines()) == 5


def test_to_tsv_reads_back(run: Callable[..., Path], tmp_path: Path) -> None:
    log = read_log(run())
    again = read_log(_written(log, tmp_path / "log.tsv"))
    for column in ("index", "label", "prediction", "samples"):
        assert again[column].tolist() == log[column].tolist()
    for column in ("radius", "noisy", "seconds"):
        assert again[column] == pytest.approx(log[column], abs=1e-6)
    assert (again.radius <= log.radius).all()
    packed = tmp_path / "log.tsv.gz"
    packed.write_bytes(gzip.compress((tmp_path / "log.tsv").read_bytes()))
    assert read_log(packed).to_tsv() == again.to_tsv()
    packed.write_bytes(packed.read_bytes()[:40])
    with pytest.raises(LedgerError, match="not a complete certification log"):
        read_log(packed)


def _written(log: Results, path: Path) -> Path:
    log.to_tsv(path)
    return path


def test_stack_needs_the_same_images(run: Callable[..., Path]) -> None:
    one, other = read_log(run()), read_log(run("other", seed=1))
    assert stack([one, other]).shape == (2, 12)
    assert stack([one, other]).mean(1).tolist() == [one.acr, other.acr]
    assert stack([one, other], "correct").dtype == bool
    with pytest.raises(LedgerError, match="different images"):
        stack([one, other[:3]])
    with pytest.raises(LedgerError, match="Image 0 has label 0 in run and 1 in run"):
        stack([one, replace(one, label=one.label + 1)])
