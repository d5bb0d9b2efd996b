from __future__ import annotations

import numpy as np
import pytest
from benchmarks.noise_cost import Settings, lines, make_jobs


def test_lines_compare_with_grid_noise() -> None:
    rates = {"grid": np.full(30, 100.0), "float": np.full(30, 101.0)}
    rows = lines("votes", rates)
    assert rows == ["| votes | grid | 100 |  |", "| votes | float | 101 | +1.00 % (+1.00 to +1.00) |"]


@pytest.mark.parametrize("kind", [0, 1])
def test_all_noises_do_the_same_work(kind: int) -> None:
    jobs = make_jobs(Settings(arch="resnet8", side=8, block=4))[kind]
    assert set(jobs) == {"grid", "keyed float", "torch.randn"}
    assert [job(0) for job in jobs.values()] == [4, 4, 4]
