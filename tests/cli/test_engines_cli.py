"""Engines on the command line: the file that was certified is the one that predicts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from smoothheads import checkpoint
from smoothheads.certify.engines import ConversionCache, openvino
from smoothheads.cli import main
from smoothheads.data import Splits, SubsetConfig, named
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.training import RunConfig


@pytest.fixture
def network(tmp_path: Path, tiny_network: Callable[..., MultiHead], small_digits: Splits) -> Path:
    data = named("digits", subset=SubsetConfig(first=150), validation=0.2)
    run = RunConfig(data=data, model=ModelConfig(arch="resnet8", heads=2))
    checkpoint.save(tmp_path / "run" / "checkpoint", tiny_network(heads=2), run, small_digits.train.info)
    return tmp_path / "run"


def manifest(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "ledger" / "manifest.json").read_text())
    return found


@pytest.mark.openvino
def test_certify_and_predict_run_the_same_file(
    network: Path, small_digits: Splits, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(openvino, "CALIBRATION", 10)
    engine = ["--engine", "openvino", "--precision", "int8", "--block", "20"]
    certify = ["certify", str(network), "--n", "100", "--n0", "20", "--first", "2", *engine, "--json"]
    assert main(certify) == 0
    json.loads(capsys.readouterr().out)  # nothing else was printed there
    (model,) = network.glob("engines/*/openvino-int8-grid-0.25/model.xml")
    facts = json.loads((model.parent / "artefact.json").read_text())
    assert manifest(network)["engine"]["artefact"]["sha256"] == facts["sha256"]
    made = model.stat().st_mtime_ns

    pixels = (small_digits.test.image(0)[0].astype(np.uint16) * 255 // 16).astype(np.uint8)
    Image.fromarray(pixels).save(network / "digit.png")
    assert main(["predict", str(network), str(network / "digit.png"), "--n", "100", *engine]) == 0
    assert model.stat().st_mtime_ns == made


@pytest.mark.openvino
def test_int8_without_its_training_images_is_a_clear_error(
    tmp_path: Path, tiny_network: Callable[..., MultiHead], small_digits: Splits
) -> None:
    from smoothheads.data import load
    from smoothheads.errors import DataError
    from smoothheads.smoothed import Smoothed

    gone = named("cifar10", root=str(tmp_path / "gone"))
    settings: dict[str, Any] = {"seed": 0, "sigma": 0.5, "engine": "openvino", "precision": "int8"}
    with pytest.raises(DataError, match=r"training images, which cannot be read: .*gone"):
        Smoothed(
            tiny_network(),
            small_digits.train.info,
            cache=ConversionCache(training=lambda: load(gone).train),
            **settings,
        )
