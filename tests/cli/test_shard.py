"""Shards that a scheduler names, as Slurm and Kubernetes set the variables of their tasks."""

from __future__ import annotations

import pytest

from smoothheads.cli.certify import parse_shard
from smoothheads.errors import ConfigError


@pytest.mark.parametrize("variable", ["SLURM_ARRAY_TASK_ID", "JOB_COMPLETION_INDEX"])
def test_parse_shard_of_a_scheduler_s_task(variable: str) -> None:
    assert parse_shard("auto/4", {variable: "2"}) == (2, 4)
    with pytest.raises(ConfigError, match="Task 4 has no place among the shards of --shard auto/4"):
        parse_shard("auto/4", {variable: "4"})


def test_parse_shard_of_two_numbers() -> None:
    assert parse_shard("2/3", {}) == (2, 3)
    with pytest.raises(ConfigError, match="'3/3' is no shard"):
        parse_shard("3/3", {})


def test_parse_shard_without_a_scheduler() -> None:
    with pytest.raises(ConfigError, match="auto/8 needs SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX"):
        parse_shard("auto/8", {})


@pytest.mark.parametrize("text", ["auto", "auto/", "auto/x", "automatic/2", "auto/-1", "1", "a/b"])
def test_parse_shard_of_nonsense(text: str) -> None:
    with pytest.raises(ConfigError, match="is no shard: give i/n"):
        parse_shard(text, {"SLURM_ARRAY_TASK_ID": "0"})
