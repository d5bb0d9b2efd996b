from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothheads.certify.theorem import GAUSSIAN, LAPLACE
from smoothheads.errors import LedgerError
from smoothheads.results.manifest import (
    budget,
    correction,
    describe_indices,
    differences,
    expected_indices,
    require_equal,
    run_indices,
    setting,
    shard,
    theorem,
)


def test_settings_are_found_at_either_level() -> None:
    manifest = {"certify": {"sigma": 0.5, "n": 10}, "n": 20}
    assert setting(manifest, "sigma") == 0.5
    assert setting(manifest, "n") == 20
    assert setting(manifest, "alpha") is None
    assert setting({}, "alpha") is None


@given(st.lists(st.integers(0, 10**6)))
def test_indices_survive(indices: list[int]) -> None:
    assert expected_indices({"indices": describe_indices(indices)}) == tuple(indices)


def test_a_progression_takes_three_numbers() -> None:
    assert describe_indices(range(0, 10_000, 20)) == {"first": 0, "step": 20, "count": 500}
    assert expected_indices({}) is None


def test_differences_name_nested_keys_and_skip_the_date() -> None:
    old = {"created": 1, "certify": {"sigma": 0.5, "n": 10}, "rules": ("a", "b")}
    new = {"created": 2, "certify": {"sigma": 0.25, "n": 10}, "rules": ["a", "b"], "extra": None}
    assert differences(old, new) == [("certify.sigma", "0.5", "0.25"), ("extra", "nothing", "null")]
    with pytest.raises(LedgerError, match=r"certify.sigma 0.5.*got certify.sigma 0.25.*another folder"):
        require_equal(old, new, "run")
    require_equal(old, old, "run")


@given(st.lists(st.integers(0, 10**6), unique=True), st.integers(1, 9))
def test_shards_share_the_images_out(indices: list[int], count: int) -> None:
    whole = {"indices": describe_indices(indices)}
    shards = [shard(whole, number, count) for number in range(count)]
    held = [index for part in shards for index in expected_indices(part) or ()]
    assert sorted(held) == sorted(indices)
    assert all(run_indices(part) == tuple(indices) for part in shards)


def test_there_is_no_shard_beyond_the_last() -> None:
    for number in (-1, 4):
        with pytest.raises(LedgerError, match="a shard from 0 to 3"):
            shard({}, number, 4)


def test_budget_and_correction() -> None:
    assert budget({}) == "fixed"
    assert budget({"certify": {"budget": "table"}}) == "table"
    assert budget({"certify": {"budget": "fixed", "bound": "clopper-pearson"}}) == "fixed"
    assert budget({"certify": {"budget": "fixed", "bound": "pair"}}) == "pair"
    assert correction({"certify": {"noise": "gaussian"}}) == 0
    assert correction({"correction": 1e-12, "certify": {"noise": "grid"}}) == 1e-12
    with pytest.raises(LedgerError, match="correction of its noise"):
        correction({"certify": {"noise": "grid"}})


def test_the_noise_decides_the_theorem() -> None:
    assert theorem({}) is theorem({"certify": {"noise": "grid"}}) is GAUSSIAN
    assert theorem({"certify": {"noise": "laplace"}}) is LAPLACE
    with pytest.raises(LedgerError, match="a ledger of a known noise, got 'lapl'; did you mean 'laplace'"):
        theorem({"noise": "lapl"})
