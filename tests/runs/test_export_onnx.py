"""The network as one ONNX file."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from smoothheads.cli import main
from smoothheads.data import load_test, named
from smoothheads.runs.models import Export, open_checkpoint
from smoothheads.smoothed import Smoothed

Make = Callable[..., Path]


def test_the_network_alone(tmp_path: Path, certified_run: Make, capsys: pytest.CaptureFixture[str]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    run = certified_run()
    out = tmp_path / "model.onnx"
    assert main(["export", str(run), "--format", "onnx", "--out", str(out)]) == 0
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    assert [(each.name, each.shape[1:]) for each in session.get_inputs()] == [("pixels", [1, 8, 8])]
    pixels = np.random.default_rng(0).random((5, 1, 8, 8), dtype=np.float32)
    with torch.no_grad():
        expected = open_checkpoint(run).model(torch.from_numpy(pixels)).numpy()
    assert np.allclose(session.run(None, {"pixels": pixels})[0], expected, atol=1e-4)
    assert main(["export", str(run), "--format", "onnx", "--out", str(out)]) == 2
    assert "exists already: choose another --out" in capsys.readouterr().err


WITHOUT = """
import sys

class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {heavy}:
            raise ImportError(f"{{name}} is not here")

sys.meta_path.insert(0, Refuse())
from smoothheads.cli import main

for options in {options}:
    assert main(["predict", {export!r}, {picture!r}, "--seed", "7", "--json", *options]) == 0
"""
HEAVY = ("torch", "safetensors", "onnx", "openvino", "sklearn", "matplotlib", "pyarrow", "huggingface_hub")
ASKED: tuple[list[str], ...] = ([], ["--radius"], ["--radius-at-least", "0.1"], ["--stop-after", "0.1"])


def test_predict_from_an_export_needs_no_pytorch(
    tmp_path: Path, certified_run: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    run, export = certified_run(engine="onnxruntime", n=200, block=50), str(tmp_path / "export")
    assert main(["export", str(run / "ledger"), "--out", export]) == 0
    assert "extra onnx" in (tmp_path / "export" / "README.txt").read_text()
    digit = load_test(named("digits")).image(0)[0] * 15
    Image.fromarray(digit.astype(np.uint8)).save(tmp_path / "digit.png")
    picture = str(tmp_path / "digit.png")
    script = WITHOUT.format(heavy=HEAVY, options=ASKED, export=export, picture=picture)
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answers = [json.loads(f"[{text}")[0] for text in done.stdout.split("[\n")[1:]]
    assert len(answers) == len(ASKED)
    assert ["radius" in answer for answer in answers] == [False, True, True, True]
    capsys.readouterr()
    for answer, asked in zip(answers[:3], ASKED[:3], strict=True):  # the last depends on the clock
        assert main(["predict", export, picture, "--seed", "7", "--json", *asked]) == 0
        assert json.loads(capsys.readouterr().out)[0] == answer
    certifier = Export.open(export).certifier(seed=7)
    assert not isinstance(certifier, Smoothed)
    smoothed, image = Export.open(export).smoothed(seed=7), digit[None] // 15
    assert certifier.predict(image)[1].tolist() == smoothed.predict(image)[1].tolist()
