from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks.plain import MeanOfHeads
from benchmarks.timing import Job

from benchmarks import contenders
from smoothheads import device
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import openvino
from smoothheads.errors import ConfigError

CONFIG = CertifyConfig(sigma=0.5, seed=0, n=100, block=20)


def test_jobs_count_all_samples(tmp_path: Path) -> None:
    bench = contenders.fresh("digits", 2, images=20)
    loop = contenders.plain_job(MeanOfHeads(bench.model), bench, CONFIG, 70)
    smoothed = contenders.smoothed(bench, CONFIG, "torch", tmp_path)
    engine = contenders.engine_job(smoothed.certifier.counter, bench, 70)
    assert [loop(0), engine(0), engine(1)] == [70, 70, 70]


@pytest.mark.openvino
@pytest.mark.parametrize("name", ["openvino float32", "openvino int8"])
def test_openvino_job(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openvino, "CALIBRATION", 10)
    bench = contenders.fresh("digits", 2, images=20)
    smoothed = contenders.smoothed(bench, CONFIG, name, tmp_path)
    assert contenders.engine_job(smoothed.certifier.counter, bench, 40)(0) == 40
    assert smoothed.engine.describe()["precision"] in name


def test_field_names_who_is_left_out() -> None:
    def refuse() -> Job:
        raise ConfigError("ART is missing: install it.")

    field = contenders.Field()
    field.add("ART", refuse)
    assert field.jobs == {}
    assert field.left_out == ["ART left out: ART is missing: install it."]


def test_smoothed_unknown_engine(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="torch bfloat16"):
        contenders.smoothed(contenders.fresh("digits", 1, images=10), CONFIG, "torch-bfloat16", tmp_path)


def test_fresh_unknown_network() -> None:
    with pytest.raises(ConfigError, match="resnet20"):
        contenders.fresh("resnet21", 1)


def test_smoothed_refuses_emulated_precision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "computes_bfloat16", lambda _: False)
    with pytest.raises(ConfigError, match="natively"):
        contenders.smoothed(contenders.fresh("digits", 1, images=10), CONFIG, "torch bfloat16", tmp_path)
