"""The smallest study there is, and an executor that needs no processes."""

from __future__ import annotations

from smoothheads.studies.executor import Finished
from smoothheads.studies.jobs import StudyJob, perform
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


class Inline:
    """Jobs are done when somebody waits for them."""

    slots = 2

    def __init__(self) -> None:
        self.jobs: list[StudyJob] = []
        self.done: list[str] = []

    def submit(self, job: StudyJob) -> None:
        self.jobs.append(job)

    def wait(self, seconds: float) -> list[Finished]:
        job = self.jobs.pop(0)
        self.done.append(job.key)
        return [Finished(job, perform(job))]

    def close(self) -> None:
        pass
