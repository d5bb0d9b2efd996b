"""The smallest study there is, and an executor that needs no processes."""

from __future__ import annotations

from typing import Any

from smoothheads.runs.executors import Future, SerialExecutor
from smoothheads.studies.parse import parse_study
from smoothheads.studies.spec import Study

TEXT = """
title = "Small"
sigmas = [0.25]
seeds = [0, 1]

[all]
recipe = "digits-single"
train.epochs = 1
data.subset.first = 40

[arms.single]

[arms.pair]
members = 2

[arms.some]
recipe = "digits-some"
model.heads = 2

[certify]
n = 50
n0 = 20
block = 10

[images]
offset = 3
every = 100
"""


def study(text: str = TEXT) -> Study:
    return parse_study(text, "small", "small.toml")


class Inline(SerialExecutor):
    """Runs jobs in this process and notes the keys of those that ended."""

    slots = 2

    def __init__(self) -> None:
        super().__init__()
        self.done: list[str] = []

    def wait(self, seconds: float) -> list[Future[Any]]:
        job = self._queue[0][2]
        self.done.append(job.key)
        return super().wait(seconds)
