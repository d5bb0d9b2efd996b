"""The whole way through OpenVINO. Skipped where the extra is not installed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import openvino as extra
from smoothheads.certify.engines.openvino import _check_bfloat16
from smoothheads.certify.votes import VoteCounter
from smoothheads.data import Dataset, Splits, SubsetConfig, select
from smoothheads.errors import CheckpointError, ConfigError, DataError, MissingExtraError, SoundnessError
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.smoothed import Smoothed
from smoothheads.types import Phase

from .builders import make_counter

Network = Callable[..., MultiHead]
Make = Callable[..., VoteCounter]


@pytest.fixture(autouse=True)
def _few_images(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extra, "CALIBRATION", 20)


@pytest.fixture
def make(
    config: CertifyConfig, trained_like: Network, small_digits: Splits, noise: Noise, tmp_path: Path
) -> Make:
    def counter(precision: str, seed: int = 0, **options: object) -> VoteCounter:
        given = {"converted": tmp_path, "training": lambda: small_digits.train} | options
        settings = config.changed(engine="openvino", precision=precision)
        model = trained_like(heads=3, seed=seed)
        return make_counter(settings, model, small_digits.train.info, noise, **given)

    return counter


def artefacts(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("model.*"))}


@pytest.mark.openvino
def test_float32_has_the_logits_of_pytorch(
    make: Make, trained_like: Network, small_digits: Splits, noise: Noise
) -> None:
    engine = make("float32")
    image = small_digits.test.image(3)
    with torch.no_grad():
        copies = torch.from_numpy(noise.noisy(image, 3, Phase.ESTIMATION, 0))
        expected = trained_like(heads=3)(copies)
    (got,) = engine.logits(image, 3, Phase.ESTIMATION, 0, 20)
    np.testing.assert_allclose(got, expected.numpy(), atol=1e-4)
    assert engine.engine.describe()["precision"] == "float32"


@pytest.mark.openvino
def test_votes_do_not_depend_on_what_is_asked_for_at_once(make: Make, small_digits: Splits) -> None:
    for precision in ("float32", "int8"):
        engine, image = make(precision), small_digits.test.image(5)
        at_once = engine.votes(image, 5, Phase.ESTIMATION, 0, 90)
        again = make(precision)  # another engine from the same files, asked backwards
        parts = [again.votes(image, 5, Phase.ESTIMATION, b, min(20, 90 - 20 * b)) for b in (4, 3, 2, 1, 0)]
        np.testing.assert_array_equal(at_once.counts, sum(part.counts for part in parts))


@pytest.mark.openvino
def test_int8_is_another_network_which_is_made_once_and_named(
    make: Make, small_digits: Splits, tmp_path: Path
) -> None:
    read: list[tuple[int, int]] = []
    engine = make("int8", on_progress=lambda done, total: read.append((done, total)))
    assert set(read) == {(done, 20) for done in range(20)}
    files = artefacts(tmp_path)
    assert [Path(name).parent.name for name in files] == ["openvino-int8-grid-0.5"] * 2
    facts = json.loads(next(tmp_path.rglob("artefact.json")).read_text())
    assert facts["sigma"] == 0.5
    assert facts["calibration"] == {"images": 20, "fingerprint": small_digits.train.fingerprint}
    assert set(facts["versions"]) == {"openvino", "nncf"}
    assert engine.engine.describe()["artefact"]["sha256"] == facts["sha256"] == engine.engine.fingerprint()

    def unwanted() -> Dataset:
        raise AssertionError("the images are not needed again")

    again = make("int8", training=unwanted)
    assert again.engine.describe() == engine.engine.describe()
    assert artefacts(tmp_path) == files
    plain = make("float32")
    image = small_digits.test.image(0)
    a, b = (next(each.logits(image, 0, Phase.ESTIMATION, 0, 20)) for each in (again, plain))
    assert 1e-4 < np.abs(a - b).max() < 0.5 * np.abs(b).max()


@pytest.mark.openvino
def test_other_weights_are_another_artefact(make: Make, tmp_path: Path) -> None:
    first, second = make("float32"), make("float32", seed=1)
    assert first.engine.fingerprint() != second.engine.fingerprint()
    assert len(list(tmp_path.rglob("model.xml"))) == 2


@pytest.mark.openvino
def test_a_changed_file_is_refused(make: Make, tmp_path: Path) -> None:
    make("float32")
    path = next(tmp_path.rglob("model.bin"))
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    with pytest.raises(CheckpointError, match=r"states sha256 .*: delete .*openvino-float32 to"):
        make("float32")
    path.unlink()
    with pytest.raises(CheckpointError, match="No such file"):
        make("float32")


@pytest.mark.openvino
def test_int8_without_training_images_says_so(make: Make) -> None:
    def absent() -> Dataset:
        raise DataError("There is no CIFAR-10 at nowhere: give its root.")

    with pytest.raises(
        DataError, match=r"calibrated with training images, which cannot be read: .*CIFAR-10 at nowhere"
    ):
        make("int8", training=absent)
    with pytest.raises(ConfigError, match="calibrated with training images: certify a checkpoint"):
        make("int8", training=None)


@pytest.mark.openvino
def test_without_a_folder_nothing_is_left_behind(make: Make, tmp_path: Path, small_digits: Splits) -> None:
    engine = make("float32", converted=None)
    assert not artefacts(tmp_path)
    assert engine.votes(small_digits.test.image(0), 0, Phase.SELECTION, 0, 20).n == 20


@pytest.mark.openvino
def test_logits_that_are_not_finite_are_refused(tiny_network: Network, small_digits: Splits) -> None:
    model = tiny_network()
    data = select(small_digits.test, SubsetConfig(first=1))
    settings: dict[str, Any] = {
        "seed": 0,
        "sigma": 0.5,
        "n0": 20,
        "n": 100,
        "block": 20,
        "engine": "openvino",
    }
    smoothed = Smoothed(model, data.info, **settings)
    assert len(list(smoothed.certify(data))) == 1
    next(module for module in model.modules() if isinstance(module, torch.nn.Linear)).bias.data[0] = torch.nan
    with pytest.raises(SoundnessError, match="NaN or infinite"):
        list(Smoothed(model, data.info, **settings).certify(data))


def test_bfloat16_needs_a_processor_that_has_it() -> None:
    _check_bfloat16(["FP32", "BF16"])
    with pytest.raises(ConfigError, match="computes FP32, INT8 but no bfloat16: use float32"):
        _check_bfloat16(["FP32", "INT8"])


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'smoothheads\[openvino\]'"):
        extra.openvino()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "int8"}, "Engine torch does not compute int8: choose engine openvino"),
        ({"device": "cuda", "engine": "openvino"}, "device belongs to engine torch, not to openvino"),
        ({"precision": "float16", "engine": "openvino"}, "openvino does not compute float16"),
        ({"precision": "float16"}, "float16 needs device cuda"),
    ],
)
def test_what_an_engine_cannot_do_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CertifyConfig(sigma=0.5, seed=0, **settings)
    CertifyConfig(sigma=0.5, seed=0, precision="float16", device="cuda:1")
