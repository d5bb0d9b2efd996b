"""Classifiers and denoisers of other libraries on the Hub, by `hf://user/name`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import smoothheads as sh
from smoothheads.cli import main
from smoothheads.results.read import read_log

from .conftest import Hub

SHAPE = (3, 8, 8)


@pytest.fixture
def vit(hub: Hub, tmp_path: Path) -> Any:
    """A tiny vision transformer with its image processor, which was committed to the Hub as user/vit."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ViTConfig(
        image_size=8, patch_size=4, hidden_size=8, num_hidden_layers=1, num_attention_heads=1,
        intermediate_size=8, num_labels=2,
    )  # fmt: skip
    model = transformers.ViTForImageClassification(config).eval()
    model.save_pretrained(tmp_path / "vit")
    (tmp_path / "vit" / "preprocessor_config.json").write_text(
        '{"image_mean": [0.5, 0.5, 0.5], "image_std": [0.25, 0.25, 0.25], "size": {"height": 8, "width": 8}}'
    )
    files = {path.name: path.read_bytes() for path in (tmp_path / "vit").iterdir()}
    hub.create("models/user/vit")
    hub.commit("models/user/vit", "main", files)
    return model


def test_hugging_face_model_by_name_is_the_model_itself(vit: Any) -> None:
    settings: dict[str, Any] = {"sigma": 0.25, "n": 200, "seed": 0, "shape": SHAPE, "classes": 2}
    image = np.full(SHAPE, 200, np.uint8)
    plain = sh.adapt(vit, mean=[0.5] * 3, std=[0.25] * 3)
    votes = [
        sh.Smoothed(model, **settings).certify_image(image, 0).votes.counts
        for model in ("hf://user/vit", plain)
    ]
    assert votes[0].tolist() == votes[1].tolist()


def test_certify_hugging_face_model_behind_a_denoiser(
    vit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    del vit
    for name in ("bright", "dark"):
        folder = tmp_path / "pictures" / "test" / name
        folder.mkdir(parents=True)
        Image.fromarray(np.full((8, 8, 3), 100, np.uint8)).save(folder / "0.png")
    monkeypatch.chdir(tmp_path)
    Path("smooth.py").write_text("def blur(images, sigma):\n    return images.clamp(0, 1)\n")
    command = ["certify", "hf://user/vit", "--data", "folder", "--root", str(tmp_path / "pictures")]
    command += ["--sigma", "0.25", "--n", "200", "--denoiser", "smooth:blur"]
    assert main(command) == 2
    assert "Add --out" in capsys.readouterr().err
    assert main([*command, "--out", "ledger"]) == 0
    manifest = read_log(Path("ledger")).manifest
    assert manifest is not None
    assert manifest.network["denoiser"]["name"] == "smooth:blur"
    assert len(manifest.network["classifier"]["sha256"]) == 64
    Path("smooth.py").write_text("def blur(images, sigma):\n    return images.clamp(0, 0.5)\n")
    monkeypatch.delitem(__import__("sys").modules, "smooth")
    assert main([*command, "--out", "ledger"]) == 2  # another denoiser does not go on with the ledger
    assert "weights" in capsys.readouterr().err
