from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smoothheads.certify.config import CertifyConfig
from smoothheads.config import differences
from smoothheads.errors import ConfigError, LedgerError
from smoothheads.noise import Laplace
from smoothheads.results.manifest import (
    Manifest,
    Shard,
    describe_indices,
    from_json,
    require_same,
)

BARE = Manifest(
    certify=CertifyConfig(sigma=0.5, seed=0), aggregations=("ensemble",), classes=2, correction=0.0
)


@given(st.lists(st.integers(0, 10**6)))
def test_what_is_written_reads_back(indices: list[int]) -> None:
    told = replace(BARE, indices=tuple(indices), shape=(1, 8, 8), engine={"engine": "torch"})
    assert from_json(json.loads(json.dumps(told.to_json())), "here") == told


def test_a_progression_takes_three_numbers() -> None:
    assert describe_indices(range(0, 10_000, 20)) == {"first": 0, "step": 20, "count": 500}
    assert BARE.expected is None


def test_another_format_is_refused() -> None:
    with pytest.raises(LedgerError, match="is smoothheads-ledger/1, not smoothheads-ledger/3; certify again"):
        from_json(BARE.to_json() | {"format": "smoothheads-ledger/1"}, "here")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"aggregations": None}, "aggregations"),
        ({"certify": {"sigma": "wide"}}, "sigma"),
        ({"certify": {"sigma": 0.5, "aggregation": "head-9"}}, "head-9"),
        ({"indices": {"first": 0, "step": 1, "count": 10**9}}, "1000000000 images"),
        ({"indices": {"first": 0}}, "indices"),
        ({"shard": {"number": 4, "of": 4}}, "Shard 4 of 4 does not exist"),
        ({"clasess": 3}, "did you mean 'classes'"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], named: str) -> None:
    with pytest.raises(LedgerError, match=named):
        from_json(BARE.to_json() | change, "here")
    with pytest.raises(LedgerError, match="correction"):
        from_json({key: value for key, value in BARE.to_json().items() if key != "correction"}, "here")


def test_differences_name_nested_keys_and_skip_the_date() -> None:
    old = {"created": 1, "certify": {"sigma": 0.5, "n": 10}, "aggregations": ("a", "b")}
    new = {"created": 2, "certify": {"sigma": 0.25, "n": 10}, "aggregations": ["a", "b"], "extra": None}
    assert differences(old, new) == [("certify.sigma", "0.5", "0.25"), ("extra", "nothing", "null")]


def test_runs_are_the_same_whatever_is_incidental() -> None:
    later = replace(BARE, created="later", format="x/1", network={"heads": 5})
    require_same(BARE, later, "this run", "use another folder")
    other = replace(BARE, certify=CertifyConfig(sigma=0.25, seed=0))
    with pytest.raises(LedgerError, match=r"certify.sigma = 0.25 instead of 0.5.*another folder"):
        require_same(BARE, other, "this run", "use another folder")


@given(st.lists(st.integers(0, 10**6), unique=True), st.integers(1, 9))
def test_shards_share_the_images_out(indices: list[int], count: int) -> None:
    whole = replace(BARE, indices=tuple(indices))
    shards = [replace(whole, shard=Shard(number=number, of=count)) for number in range(count)]
    assert sorted(index for part in shards for index in part.expected or ()) == sorted(indices)


def test_the_noise_decides_the_theorem() -> None:
    assert BARE.law.norm == "l2"
    assert replace(BARE, certify=CertifyConfig(sigma=0.5, seed=0, noise="laplace")).law == Laplace()


@pytest.mark.parametrize("classes", [0, -1, 10**18])
def test_a_number_of_classes_that_no_memory_holds_is_refused(manifest: Manifest, classes: int) -> None:
    with pytest.raises(ConfigError, match="1 to 1,000,000 classes"):
        replace(manifest, classes=classes)
