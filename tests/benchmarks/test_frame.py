from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from benchmarks.frame import BenchResults, compared
from benchmarks.timing import describe_machine

from smoothheads.report.table import Cell, to_text


def results() -> BenchResults:
    rates = {"loop": np.array([10.0, 20.0, 10.0]), "ours": np.array([30.0, 60.0, 40.0])}
    return compared(
        "votes-x",
        "A title",
        unit="votes/s",
        baselines=("loop",),
        rates=rates,
        machine=describe_machine(1),
        settings={"rounds": 3},
        facts={"ours": {"ACR": Cell("0.51", 0.512)}},
        notes=("ART left out",),
    )


def test_compared_table_has_ratios() -> None:
    text = to_text(results().table)
    loop, ours = (line.split() for line in text.splitlines() if line.startswith(("loop", "ours")))
    assert loop == ["loop", "10", "1.00", "[1.00,", "1.00]"]
    assert ours == ["ours", "40", "3.00", "[3.00,", "4.00]", "0.51"]
    assert "ART left out" in text
    assert "torch" in text.splitlines()[-1]


def test_publish_json_has_every_round(tmp_path: Path) -> None:
    data, text, picture = results().publish(tmp_path / "deep" / "bench")
    stored = json.loads(data.read_text())
    ours = stored["contenders"]["ours"]
    assert ours["rates"] == [30.0, 60.0, 40.0]
    assert ours["ratios"]["loop"] == {"median": 3.0, "low": 3.0, "high": 4.0}
    assert ours["facts"] == {"ACR": 0.512}
    assert stored["machine"]["versions"]["torch"]
    assert "times faster than" in picture.read_text()
    assert "| ours | 40 | 3.00 [3.00, 4.00] | 0.51 |" in text.read_text()
