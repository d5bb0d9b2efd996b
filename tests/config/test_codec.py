from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from smoothheads import cookbook
from smoothheads.certify.config import CertifyConfig
from smoothheads.config import digest, from_dict, load_json, to_dict
from smoothheads.errors import ConfigError
from smoothheads.training import RunConfig, TrainConfig


@pytest.mark.parametrize(
    "name", ["digits-some", "mnist-lenet-smoothmix-0.50", "cifar10-resnet110-5dnns-macer-1.00"]
)
def test_configurations_survive_json(name: str) -> None:
    config = cookbook.get(name).config
    assert from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))) == config


def test_unknown_field_is_an_error_that_names_the_nearest() -> None:
    data = to_dict(RunConfig())
    data["train"]["epoch"] = 3
    with pytest.raises(ConfigError, match=r"config\.train.*'epoch'.*did you mean 'epochs'"):
        from_dict(RunConfig, data)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epochs", "3", "int at config.train.epochs"),
        ("epochs", True, "int at config.train.epochs"),
        ("lr", None, "float at config.train.lr"),
        ("schedule", "steps", "did you mean 'step'"),
        ("epochs", 0, "epochs >= 1, got 0"),
        ("sigma", 0.0, "sigma > 0, got 0"),
        ("sigma", -1, "sigma > 0, got -1"),
        ("sigma", float("nan"), "sigma > 0, got nan"),
    ],
)
def test_wrong_values_are_refused(field: str, value: object, message: str) -> None:
    data = to_dict(RunConfig())
    data["train"][field] = value
    with pytest.raises(ConfigError, match=message):
        from_dict(RunConfig, data)


def test_an_unknown_method_is_refused_by_name() -> None:
    data = to_dict(RunConfig())
    data["objective"]["method"]["name"] = "gausian"
    with pytest.raises(ConfigError, match="did you mean 'gaussian'"):
        from_dict(RunConfig, data)


def test_integers_are_read_as_floats_but_not_the_reverse() -> None:
    assert from_dict(TrainConfig, {"lr": 1}).lr == 1.0
    with pytest.raises(ConfigError):
        from_dict(TrainConfig, {"epochs": 1.5})


def test_missing_required_field_is_named() -> None:
    with pytest.raises(ConfigError, match="sigma"):
        from_dict(CertifyConfig, {})


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.7, -0.1])
def test_alpha_outside_its_range_is_refused(alpha: float) -> None:
    with pytest.raises(ConfigError, match=r"0 < alpha < 0\.5"):
        CertifyConfig.of(0.5, seed=0, alpha=alpha)


def test_blocks_per_pass_is_a_number_or_auto() -> None:
    for value in (1, 8, "auto"):
        config = from_dict(CertifyConfig, {"sigma": 0.5, "blocks_per_pass": value})
        assert to_dict(config)["engine"]["blocks_per_pass"] == value
    with pytest.raises(ConfigError, match="blocks_per_pass >= 1"):
        CertifyConfig.of(0.5, seed=0, blocks_per_pass=0)
    with pytest.raises(ConfigError, match=r"a known value of config\.engine\.blocks_per_pass, got 'many'"):
        from_dict(CertifyConfig, {"sigma": 0.5, "blocks_per_pass": "many"})


def test_digest_tells_settings_apart() -> None:
    one, other = RunConfig(), RunConfig(train=TrainConfig(seed=1))
    assert digest(one) == digest(dataclasses.replace(one)) != digest(other)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"'])
def test_damaged_json_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"config\.json"):
        load_json(path)
