"""Which shard of the images `certify --shard` means: as said, or as the scheduler numbers its tasks."""

from __future__ import annotations

import os
from collections.abc import Mapping

from smoothheads.errors import ConfigError

Environment = Mapping[str, str]


def parse_shard(text: str, environment: Environment = os.environ) -> tuple[int, int]:
    """(i, n) of i/n, of auto, which asks the scheduler for both, and of auto/n, which asks it for i."""
    word, _, said = text.partition("/")
    if word == "auto" and (said.isdecimal() or text == "auto"):
        number, count = _scheduled(int(said) if said else None, environment)
        if number < count:
            return number, count
        numbers, remedy = f"a task from 0 to {count - 1}", "number the tasks from 0, or give the right auto/n"
        raise ConfigError(f"{numbers} for --shard {text}", str(number), remedy)
    if word.isdecimal() and said.isdecimal() and int(word) < int(said):
        return int(word), int(said)
    raise ConfigError("a shard i/n with 0 <= i < n", repr(text), "for example 0/4, 1/4, 2/4, 3/4, or auto")


def _scheduled(count: int | None, environment: Environment) -> tuple[int, int]:
    """Number and count of this task. Of a task that is submitted again alone Slurm knows only the number."""
    if "SLURM_ARRAY_TASK_ID" in environment:
        task = _number(environment, "SLURM_ARRAY_TASK_ID")
        return (task, count) if count is not None else _in_array(task, environment)
    if "JOB_COMPLETION_INDEX" in environment:
        task = _number(environment, "JOB_COMPLETION_INDEX")
        return task, _number(environment, "JOB_COMPLETIONS") if count is None else count
    raise ConfigError(
        "SLURM_ARRAY_TASK_ID or JOB_COMPLETION_INDEX for --shard auto",
        "neither",
        "run it as a task of a Slurm array or of an indexed job, or say which shard: i/n",
    )


def _in_array(task: int, environment: Environment) -> tuple[int, int]:
    """An array of the tasks a, a + s, a + 2s, ...; any other would leave some of the images out. Where only
    their number is told, they are 0, 1, 2, ..."""
    count = _number(environment, "SLURM_ARRAY_TASK_COUNT")
    first = _number(environment, "SLURM_ARRAY_TASK_MIN", 0)
    step = max(1, _number(environment, "SLURM_ARRAY_TASK_STEP", 1))
    last = _number(environment, "SLURM_ARRAY_TASK_MAX", first + step * (count - 1))
    if first + step * (count - 1) != last or (task - first) % step:
        raise ConfigError(
            "an array without gaps for --shard auto",
            f"{count} tasks from {first} to {last}, of which this is {task}",
            "submit it as --array=0-7, or say how many shards there are: --shard auto/8",
        )
    return (task - first) // step, count


def _number(environment: Environment, name: str, default: int | None = None) -> int:
    if default is not None and name not in environment:
        return default
    found = environment.get(name, "")
    if not found.isdecimal():
        got = repr(found) if found else "none"
        raise ConfigError(f"a number in {name}", got, "say how many shards there are: --shard auto/8")
    return int(found)
