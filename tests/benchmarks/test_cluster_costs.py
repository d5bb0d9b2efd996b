"""What `bench cluster` simulates is what the logs give, and what `ray_rate` counts is processor time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest
from benchmarks.ray_rate import processor_seconds
from benchmarks.record_costs import costs

from smoothheads.bench.cluster import recorded


@pytest.mark.shared
def test_recorded_costs_are_those_of_the_published_logs(shared_data: Path) -> None:
    kept = {data: found for data, budget, found in recorded() if budget == "table"}
    for data, found in kept.items():
        log = shared_data / "published-logs" / "cohen" / f"{data}-0.50.tsv"
        assert costs(log, first=20) == list(found[:20])


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_processor_time_is_that_of_children_too() -> None:
    before = processor_seconds()
    busy = "while True: pass"
    with subprocess.Popen([sys.executable, "-c", busy]) as child:
        try:
            while processor_seconds() < before + 0.3:
                time.sleep(0.05)
        finally:
            child.kill()
