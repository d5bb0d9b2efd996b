"""Shards that a scheduler names, as Slurm and Kubernetes set the variables of their tasks."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from smoothheads.cli.certify import parse_shard
from smoothheads.errors import ConfigError


def slurm(task: int, tasks: Sequence[int]) -> dict[str, str]:
    """What `sbatch --array` sets for one of the tasks."""
    facts = {"ID": task, "COUNT": len(tasks), "MIN": min(tasks), "MAX": max(tasks)}
    facts["STEP"] = tasks.step if isinstance(tasks, range) else 1
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in facts.items()}


@pytest.mark.parametrize("tasks", [[0], range(4), range(1, 4), [5, 6], range(0, 7, 2), range(10, 21, 5)])
def test_the_tasks_of_an_array_are_all_shards(tasks: Sequence[int]) -> None:
    found = [parse_shard("auto", slurm(task, tasks)) for task in tasks]
    assert found == [(number, len(tasks)) for number in range(len(tasks))]


def test_where_only_their_number_is_told_tasks_count_from_0() -> None:
    told = {"SLURM_ARRAY_TASK_ID": "1", "SLURM_ARRAY_TASK_COUNT": "2"}
    assert parse_shard("auto", told) == (1, 2)
    with pytest.raises(
        ConfigError, match="Task 2 has no place among the 2 shards of --shard auto: number the tasks from"
    ):
        parse_shard("auto", told | {"SLURM_ARRAY_TASK_ID": "2"})


def test_a_task_that_is_submitted_again_alone_keeps_its_shard() -> None:
    assert parse_shard("auto/8", slurm(3, [3])) == (3, 8)
    with pytest.raises(ConfigError, match="Task 8 has no place among the 8 shards of --shard auto/8"):
        parse_shard("auto/8", slurm(8, [8]))


@pytest.mark.parametrize("tasks", [[1, 3, 7], [0, 1, 2, 5], [0, 1, 4]])
def test_an_array_with_gaps_is_refused_by_every_task(tasks: list[int]) -> None:
    for task in tasks:
        with pytest.raises(ConfigError, match="The Slurm array has gaps"):
            parse_shard("auto", slurm(task, tasks))


def test_the_pods_of_an_indexed_job() -> None:
    assert parse_shard("auto/4", {"JOB_COMPLETION_INDEX": "2"}) == (2, 4)
    assert parse_shard("auto", {"JOB_COMPLETION_INDEX": "2", "JOB_COMPLETIONS": "3"}) == (2, 3)
    with pytest.raises(ConfigError, match="JOB_COMPLETIONS is '' and no number: say how many"):
        parse_shard("auto", {"JOB_COMPLETION_INDEX": "2"})
    with pytest.raises(ConfigError, match="Task 2 has no place among the 2 shards of --shard auto/2"):
        parse_shard("auto/2", {"JOB_COMPLETION_INDEX": "2"})


def test_no_scheduler_and_nonsense_are_refused() -> None:
    with pytest.raises(ConfigError, match="--shard auto needs SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX"):
        parse_shard("auto", {})
    with pytest.raises(ConfigError, match="SLURM_ARRAY_TASK_COUNT is 'many' and no number"):
        parse_shard("auto", slurm(0, [0, 1]) | {"SLURM_ARRAY_TASK_COUNT": "many"})
    for text in ("auto/", "auto/x", "automatic", "auto/-1"):
        with pytest.raises(ConfigError, match="is no shard: give i/n"):
            parse_shard(text, slurm(0, [0, 1]))
    with pytest.raises(ConfigError):
        parse_shard("auto/0", slurm(0, [0]))
