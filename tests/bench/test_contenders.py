from __future__ import annotations

from pathlib import Path

import pytest

from smoothheads import device
from smoothheads.bench import contenders, networks, roofline
from smoothheads.bench.networks import Size
from smoothheads.bench.plain import MeanOfHeads
from smoothheads.bench.timing import Job
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import convert
from smoothheads.errors import ConfigError
from smoothheads.models.cost import cost
from smoothheads.types import Phase

CONFIG = CertifyConfig.of(0.5, seed=0, n=100, block=20)
SMALL = Size("resnet8", (1, 8, 8))


def test_plain_loop_and_engine_count_the_same_samples(tmp_path: Path) -> None:
    bench = networks.make(SMALL, 2, images=20)
    loop = contenders.plain_job(MeanOfHeads(bench.model), bench.images, 70, sigma=0.5, threads=1)
    engine = contenders.engine_job(contenders.make(bench, CONFIG, tmp_path).engine, bench, 70)
    assert [loop(0), engine(0), engine(1)] == [70, 70, 70]


@pytest.mark.openvino
@pytest.mark.parametrize("name", ["openvino float32", "openvino int8"])
def test_openvino_takes_part(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(convert, "CALIBRATION", 10)
    bench = networks.make(SMALL, 2, images=20)
    field = contenders.Field()
    field.add_engine(name, bench, CONFIG.changed(**contenders.settings_of(name)), tmp_path, 40)
    assert field.jobs[name](0) == 40
    assert field.engines[name].describe()["precision"] in name


def test_what_cannot_take_part_is_named() -> None:
    def refuse() -> Job:
        raise ConfigError("a thing", "none", "install it")

    field = contenders.Field()
    field.add("ART", refuse)
    assert field.jobs == {}
    assert field.left_out == ["ART left out: expected a thing, got none; install it"]


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ConfigError, match="torch compiled"):
        contenders.settings_of("torch-compiled")


def test_emulated_precision_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "computes_bfloat16", lambda _: False)
    with pytest.raises(ConfigError, match="natively"):
        contenders.make(networks.make(SMALL, 1, images=10), CONFIG.changed(precision="bfloat16"), tmp_path)


def test_parts_of_a_vote_are_all_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roofline, "ENOUGH_SECONDS", 0.0)
    bench = networks.make(SMALL, 2, images=10)
    field = contenders.Field()
    field.add_engine("torch", bench, CONFIG, tmp_path, 20)
    engine = field.engines["torch"]
    parts = roofline.shares(engine, bench)
    assert min(parts.noise, parts.network, parts.counting, parts.whole) > 0
    assert "convolution" in roofline.operators(lambda: engine.votes(bench.image(), 0, Phase.PILOT, 0, 20))


def test_ideal_network_is_nearly_all_convolution() -> None:
    bench = networks.ideal(channels=16, side=8, layers=2)
    assert cost(bench.model, bench.info.shape).macs > 2 * 16 * 16 * 9 * 64
