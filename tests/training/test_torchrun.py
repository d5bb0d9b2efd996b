"""The real torchrun, once: two nodes (agents on this machine), a killed rank, an elastic restart."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from smoothheads import cli

ARGUMENTS = ["train", "digits-single", "--train.shards=2", "--data.subset.first=60", "--train.epochs=2"]
ARGUMENTS += ["--train.batch=16"]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.mark.skipif(sys.platform == "win32", reason="kills a rank")
def test_two_nodes_go_on_after_a_killed_rank_to_the_bits_of_one_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    command += ["--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{free_port()}", "--max-restarts=1"]
    command += [str(Path(__file__).with_name("mortal.py")), str(tmp_path / "killed"), *ARGUMENTS]
    command += ["--out", str(tmp_path / "ranks"), "--resume", "--save-seconds", "0"]
    pipe, joined = subprocess.PIPE, subprocess.STDOUT
    nodes = [subprocess.Popen(command, stdout=pipe, stderr=joined, text=True) for _ in range(2)]
    try:
        printed = "".join(node.communicate(timeout=280)[0] for node in nodes)
    finally:
        for node in nodes:
            node.terminate()  # it ends its ranks
            node.wait(60)
    assert [node.returncode for node in nodes] == [0, 0], printed
    assert (tmp_path / "killed").exists()
    lines = printed.splitlines()
    assert (
        len([line for line in lines if line.startswith("smoothheads: At least one of 2 ranks is lost")]) == 1
    )
    assert lines.count(str(tmp_path / "ranks" / "checkpoint")) == 1

    assert cli.main([*ARGUMENTS, "--out", str(tmp_path / "alone")]) == 0
    ranks, alone = (tmp_path / name / "checkpoint" / "model.safetensors" for name in ("ranks", "alone"))
    assert ranks.read_bytes() == alone.read_bytes()


def test_restarts_want_resume(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "2")
    assert cli.main(["train", "digits-single"]) == 2
    assert "Add --resume: with torchrun --max-restarts" in capsys.readouterr().err
