"""A side of `benchmarks.torchrun` takes a step for every line that it is given."""

from __future__ import annotations

import io
import json

import pytest

from benchmarks import torchrun as study


def test_a_step_for_every_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("step\nstep\n"))
    study.serve(study.Settings(network="digits", heads=2, images=8))
    ready, *answers = capsys.readouterr().out.splitlines()
    assert ready == "ready"
    steps = [json.loads(answer) for answer in answers]
    assert len(steps) == 2
    assert steps[0]["loss"] != steps[1]["loss"]
    assert all(len(step["processor"]) == 1 and step["processor"][0] > 0 for step in steps)
