from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from smoothheads import recipes
from smoothheads.certify.config import CertifyConfig
from smoothheads.config import differences, from_dict, load_json, parse_json, to_dict, with_overrides
from smoothheads.errors import ConfigError, SettingError
from smoothheads.objectives import Gaussian, Stability
from smoothheads.training import RunConfig, TrainConfig


@pytest.mark.parametrize(
    ("name", "method"),
    [("digits-some", "gaussian"), ("mnist-lenet", "smoothmix"), ("cifar10-resnet110", "macer")],
)
def test_configurations_survive_json(name: str, method: str) -> None:
    config = recipes.get(name, method=method)
    assert from_dict(RunConfig, json.loads(json.dumps(to_dict(config)))) == config


def test_unknown_field_is_an_error_that_names_the_nearest() -> None:
    data = to_dict(RunConfig())
    data["train"]["epoch"] = 3
    with pytest.raises(ConfigError, match=r"Unknown setting 'train\.epoch': did you mean 'epochs'"):
        from_dict(RunConfig, data)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("epochs", "3", "Set train.epochs to a value of type int"),
        ("epochs", True, "Set train.epochs to a value of type int"),
        ("lr", None, "Set train.lr to a value of type float"),
        ("schedule", "steps", "did you mean 'step'"),
        ("epochs", 0, "epochs >= 1, not 0"),
        ("lr", 0.0, "lr > 0, not 0"),
        ("sigma", -1, "sigma >= 0, not -1"),
        ("sigma", float("nan"), "sigma >= 0, not nan"),
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
    with pytest.raises(ConfigError, match="alpha is"):
        CertifyConfig(sigma=0.5, seed=0, alpha=alpha)


def test_overrides_are_dotted_keys_or_tables() -> None:
    config = RunConfig()
    changed = with_overrides(config, {"train.epochs": 3, "train": {"lr": 0.2}, "data.root": Path("data")})
    assert (changed.train.epochs, changed.train.lr, changed.data.root) == (3, 0.2, "data")
    assert with_overrides(config, {}) == config


def test_overrides_replace_a_component_with_another_name() -> None:
    config = with_overrides(RunConfig(), {"objective.method.draws": 4})
    assert config.objective.method == Gaussian(draws=4)
    other = with_overrides(config, {"objective.method": {"name": "stability"}})
    assert other.objective.method == Stability()  # with its own draws, not those of the method before
    assert with_overrides(config, {"objective.method": Stability(strength=3.0)}).objective.method == (
        Stability(strength=3.0)
    )


@pytest.mark.parametrize(
    ("changes", "key", "message"),
    [
        ({"train.epoch": 3}, "train.epoch", "Unknown setting 'train.epoch': did you mean 'epochs'?"),
        ({"trian.epochs": 3}, "trian", "Unknown setting 'trian': did you mean 'train'?"),
        ({"train": 3}, "train", "Write train as a table of fields, not as 3."),
        ({"train.epochs": 0}, "train.epochs", "Choose epochs >= 1, not 0."),
        ({"objective.method": "gausian"}, "objective.method", "did you mean 'gaussian'?"),
    ],
)
def test_a_wrong_override_names_its_key(changes: dict[str, object], key: str, message: str) -> None:
    with pytest.raises(SettingError, match=re.escape(message)) as caught:
        with_overrides(RunConfig(), changes)
    assert caught.value.key == key


def test_a_missing_file_and_a_folder_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="There is no file"):
        load_json(tmp_path / "absent.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_json(tmp_path)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[1]", "no JSON object but a list"),
        ("{" + '"a":{' * 60 + "}" * 61, "more than 50 levels"),
        ('{"a":' * 100_000, "levels"),
        ("[" * 100_000, "too many levels"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        (json.dumps({"a": 10**400}), r"beyond 2\*\*64"),
        ('{"a": 1, "a": 2}', "appears twice"),
        ('{"a": "\\ud800"}', "surrogates"),
        (b'{"a": "\xff"}', "decode"),
        (b"\xff\xfe{\x00", "Expecting"),
    ],
)
def test_unreasonable_json_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_json(text, "here")


def test_a_good_file_is_read(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, None, True, {"b": "é"}], "seed": 2**64}
    (tmp_path / "x.json").write_text(json.dumps(value))
    assert load_json(tmp_path / "x.json") == value


def test_differences_have_dotted_keys() -> None:
    assert differences({"a": {"b": 1}, "created": 1}, {"a": {"b": 2}, "c": 3}) == [
        ("a.b", "1", "2"),
        ("c", "nothing", "3"),
    ]
