"""The network as one ONNX file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from smoothheads.cli import main
from smoothheads.runs.layout import open_checkpoint

RUN = Path(__file__).parents[1] / "fixtures" / "v1" / "run"


def test_the_network_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnxruntime = pytest.importorskip("onnxruntime", reason="the extra onnx is not installed")
    out = tmp_path / "model.onnx"
    assert main(["export", str(RUN), "--format", "onnx", "--out", str(out)]) == 0
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    assert [(each.name, each.shape[1:]) for each in session.get_inputs()] == [("pixels", [1, 8, 8])]
    pixels = np.random.default_rng(0).random((5, 1, 8, 8), dtype=np.float32)
    with torch.no_grad():
        expected = open_checkpoint(RUN).model(torch.from_numpy(pixels)).numpy()
    assert np.allclose(session.run(None, {"pixels": pixels})[0], expected, atol=1e-4)
    assert main(["export", str(RUN), "--format", "onnx", "--out", str(out)]) == 2
    assert "a new file" in capsys.readouterr().err
