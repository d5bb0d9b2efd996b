"""Ctrl-C on the real program: state saved, exit code 130, no traceback, and it goes on to the same bits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from smoothheads.cli import main

OPTIONS = ["--data.subset.first", "60", "--train.epochs", "6", "--train.batch", "16", "--model.heads", "2"]


def command(out: Path) -> list[str]:
    return ["train", "digits-some", *OPTIONS, "--out", str(out)]


@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl-C goes to the whole console there")
def test_ctrl_c_saves_the_state_and_resume_gives_the_same_bits(tmp_path: Path) -> None:
    out, whole = tmp_path / "broken", tmp_path / "whole"
    program = [sys.executable, "-m", "smoothheads", *command(out)]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}  # as in this process, to the same bits
    broken = subprocess.Popen(program, stderr=subprocess.PIPE, text=True, env=one_thread)
    while broken.poll() is None and not (out / "metrics.jsonl").exists():
        time.sleep(0.01)  # until training has begun; whenever the signal comes, the result must be the same
    broken.send_signal(signal.SIGINT)
    _, errors = broken.communicate()
    assert "Traceback" not in errors
    if broken.returncode != 0:  # it may have been through already
        assert broken.returncode == 130
        assert "interrupted" in errors
        assert (out / "state.safetensors").exists()
        assert main([*command(out), "--resume"]) == 0
    assert main(command(whole)) == 0
    weights = [folder / "checkpoint" / "model.safetensors" for folder in (whole, out)]
    assert weights[0].read_bytes() == weights[1].read_bytes()
