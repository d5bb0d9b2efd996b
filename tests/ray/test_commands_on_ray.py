"""`--on ray` from the command line: a local cluster comes and goes with the command, whatever ends it."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.ray.conftest import descendants

from smoothheads.cli import main

SETTINGS = ["--n0", "20", "--n", "1000", "--block", "20", "--seed", "0", "--engine", "openvino"]


def certify(network: Path, out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "smoothheads", "certify", str(network), "--out", str(out), *SETTINGS, *more]


def without_time(out: Path) -> list[list[str]]:
    lines = (out / "ledger.tsv").read_text().splitlines()
    return [[word for i, word in enumerate(line.split("\t")) if i != 5] for line in lines]


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.openvino
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
def test_a_driver_that_is_killed_goes_on_and_leaves_nobody_behind(network: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    home, out = tmp_path / "home", tmp_path / "ray"
    home.mkdir()
    environment = os.environ | {"HOME": str(home), "OMP_NUM_THREADS": "1"}
    command = certify(network, out, "--on", "ray", "--workers", "2", "--first", "30")
    first = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    started: dict[int, str] = {}
    try:
        while first.poll() is None and (not (out / "ledger.tsv").exists() or len(without_time(out)) < 2):
            started |= descendants(first.pid)
            time.sleep(0.01)
    finally:
        first.kill()
        first.wait()
    assert any("raylet" in each for each in started.values())
    assert any(each.startswith("ray::RayWorker") for each in started.values())
    assert len(without_time(out)) > 1
    ended = subprocess.run([*command, "--json"], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert json.loads(ended.stdout)  # Ray's words are not among it
    local = certify(network, tmp_path / "local", "--workers", "1", "--first", "30")
    subprocess.run(local, env=environment, capture_output=True, check=True)
    assert without_time(out) == without_time(tmp_path / "local")
    left = {each: command for each, command in started.items() if alive(each)}
    for folder in set(re.findall(r"/\S*/heads-\w+(?=/)", " ".join(started.values()))):
        shutil.rmtree(folder)  # nobody else could
    for each in left:  # two agents of Ray end by themselves after a minute, when nobody answers them
        os.kill(each, signal.SIGKILL)
    assert all(
        command.startswith(("ray::DashboardAgent", "ray::RuntimeEnvAgent")) for command in left.values()
    )
    assert not list(home.iterdir())  # no token, no statistics


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ray-address", "localhost:1"], "--ray-address needs --on ray"),
        (["--on", "ray", "--shard", "0/2", "--seed", "1"], "Give either --shard or --on ray"),
        (
            ["--on", "ray", "--ray-address", "127.0.0.1:9"],
            "No Ray cluster answers at 127.0.0.1:9",
        ),
        (
            ["--on", "ray", "--ray-address", "ray://head:10001"],
            "'ray://head:10001' is no address of a Ray",
        ),
        (["--on", "ray", "--workers", "0"], "workers >= 1"),
    ],
)
def test_bad_input_gives_one_message(
    network: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("ray", reason="the extra ray is not installed")
    assert main(["certify", str(network), "--out", str(tmp_path / "out"), *arguments]) == 2
    printed = capsys.readouterr().err.splitlines()[-1]
    assert message in printed
    assert not (tmp_path / "out").exists()


def test_without_ray_the_extra_is_named(
    network: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert main(["certify", str(network), "--out", str(tmp_path / "out"), "--on", "ray"]) == 2
    assert "pip install 'smoothheads[ray]'" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
