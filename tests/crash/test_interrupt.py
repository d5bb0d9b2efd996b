"""Ctrl-C on the real program: state saved, exit code 130, no traceback, and it goes on to the same bits."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

OPTIONS = ["--data.subset.first", "60", "--train.epochs", "6", "--train.batch", "16", "--model.heads", "2"]


def start(out: Path, *more: str) -> subprocess.Popen[str]:
    command = [
        sys.executable,
        "-m",
        "smoothheads",
        "train",
        "digits-some",
        *OPTIONS,
        "--out",
        str(out),
        *more,
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_ctrl_c_saves_the_state_and_resume_gives_the_same_bits(tmp_path: Path) -> None:
    whole = start(tmp_path / "whole")
    assert whole.wait() == 0

    broken = start(tmp_path / "broken")
    while broken.poll() is None and not (tmp_path / "broken" / "metrics.jsonl").exists():
        time.sleep(0.01)  # until training has begun; whenever the signal comes, the result must be the same
    broken.send_signal(signal.SIGINT)
    _, errors = broken.communicate()
    assert "Traceback" not in errors
    if broken.returncode != 0:  # it may have been through already
        assert broken.returncode == 130
        assert "interrupted" in errors
        assert (tmp_path / "broken" / "state.safetensors").exists()
        resumed = start(tmp_path / "broken", "--resume")
        assert resumed.wait() == 0
    weights = [tmp_path / name / "checkpoint" / "model.safetensors" for name in ("whole", "broken")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
