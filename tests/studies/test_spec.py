"""A study file: what it stands for, and what is reported about mistakes in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.studies.small import TEXT, study

from smoothheads.errors import ConfigError
from smoothheads.studies.spec import read_study


def test_overrides_of_all_arms_the_arm_and_the_setting_change_the_recipe() -> None:
    found = study(TEXT + "[settings.long]\ntrain.epochs = 3\n")
    config = found.run_config(found.arm("some"), "long", 0.5, 7)
    assert (config.train.epochs, config.train.sigma, config.train.seed) == (3, 0.5, 7)
    assert (config.model.heads, config.data.subset.first) == (2, 40)


def test_precision_auto_is_float32_on_every_machine() -> None:
    """auto is bfloat16 on some processors, so that rows of one study were mixed."""
    found = study(
        TEXT + '[arms.short]\ntrain.precision = "bfloat16"\n[arms.auto]\ntrain.precision = "auto"\n'
    )
    chosen = {arm.name: found.run_config(arm, "", 0.25, 0).train.precision for arm in found.arms}
    assert chosen.pop("short") == "bfloat16"
    assert set(chosen.values()) == {"float32"}


def test_another_method_replaces_the_recipes_method_with_its_fields() -> None:
    found = study(TEXT + '[settings.c]\nobjective.method = {name = "consistency", strength = 5.0}\n')
    method = found.run_config(found.arm("single"), "c", 0.25, 0).objective.method
    assert method.name == "consistency"


@pytest.mark.parametrize(
    ("old", "new", "key", "near"),
    [
        ("train.epochs", "train.epoch", "arms.single.train.epoch", "epochs"),
        ("members", "member", "arms.pair.member", "members"),
        ("n0 = 20", "m0 = 20", "certify.m0", "n0"),
        ("offset", "offsett", "images.offsett", "offset"),
        ("sigmas", "sigma", "sigma", "sigmas"),
        ('"digits-some"', '"digits-somme"', "arms.some.recipe", "digits-some"),
    ],
)
def test_unknown_name_is_reported_with_its_key_and_the_nearest(
    old: str, new: str, key: str, near: str
) -> None:
    with pytest.raises(ConfigError, match=rf"small.toml, at {key}: .*did you mean '{near}'"):
        study(TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("seeds = [0, 1]", "seeds = [0.5]", "seeds"),  # taken for seed 0: networks of another study
        ("seeds = [0, 1]", "seeds = [-1]", "seeds"),
        ("seeds = [0, 1]", "seeds = [true]", "seeds"),
        ("sigmas = [0.25]", 'sigmas = ["a"]', "sigmas"),
        ("[images]", '[show]\nradii = ["a"]\n[images]', "show.radii"),
        ("[images]", "[show]\ndifferences = [1]\n[images]", "show.differences"),
        ("[images]", "[show]\ndifferences = 3\n[images]", "show.differences"),
        ("[images]", "[show]\ndifferences = [[1, 2]]\n[images]", "show.differences"),
        ("[images]", '[show]\ndifferences = [["some"]]\n[images]', "show.differences"),
        ("[images]", "[settings.x]\ntrain = 3\n[images]", "settings.x.train"),
        ("[images]", "[settings.x]\ntrain.epochs = 0\n[images]", "settings.x.train.epochs"),
        ("train.epochs = 1", "train.epochs = 0", "arms.single.train.epochs"),
        ("members = 2", "members = 0", "arms.pair.members"),
        ("block = 10", "block = 0", "certify.block"),
    ],
)
def test_wrong_value_is_reported_with_its_key(old: str, new: str, key: str) -> None:
    with pytest.raises(ConfigError, match=rf"small.toml, at {key}: "):
        study(TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "[arms.single]",
            '[arms.single]\nstart = "single"',
            "at arms.single.start: 'single' is no arm above single",
        ),
        ("[arms.some]", '[arms.some]\nstart = "pairs"', "'pairs' .*did you mean 'pair'"),
        ("[arms.single]", "[arms.single]\nsigmas = [0.7]", r"at arms.single.sigmas: .*sigma 0\.7"),
        ("[arms.single]", "[arms.single]\nmodel = 3", r"Write arms\.single\.model as a table"),
        (
            "[arms.single]",
            "[arms.single]\ntrain.sigma = 0.5",
            r"at arms.single.train.sigma: Drop train\.sigma",
        ),
        ("[arms.single]", '[arms.single]\nlabel = "pair"', "label 'pair'"),
        (
            "members = 2",
            'members = 2\naggregation = "head-9"',
            "at arms.pair.aggregation: Arm pair has 2 heads",
        ),
        (
            "seeds = [0, 1]",
            "seeds = [0, 1000]",
            "at seeds: Two of the seeds would share a network of the ensemble pair",
        ),
        ("n = 50", 'n = 50\naggregation = "head-1"', r"Drop certify\.aggregation"),
    ],
)
def test_contradictory_settings_are_refused(old: str, new: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        study(TEXT.replace(old, new))


def test_name_with_a_dot_needs_quotes() -> None:
    with pytest.raises(ConfigError, match=r"'arms\.lambda-0\.5': .*A name that holds a dot needs quotes"):
        study(TEXT + "[arms.lambda-0.5]\n")
    assert study(TEXT + '[arms."lambda-0.5"]\n').arm("lambda-0.5").recipe == "digits-single"
    with pytest.raises(ConfigError, match=r"at arms\.lambda-0\.5\.train\.epoch: "):
        study(TEXT + '[arms."lambda-0.5"]\ntrain.epoch = 3\n')


def test_missing_and_broken_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        read_study(tmp_path / "none.toml")
    (tmp_path / "broken.toml").write_text("arms = [")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        read_study(tmp_path / "broken.toml")
    (tmp_path / "latin.toml").write_bytes(b'title = "\xe4"')
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_study(tmp_path / "latin.toml")
    with pytest.raises(ConfigError, match=re.escape("not ['some', 'singel']; did you mean 'single'")):
        study(TEXT + '[show]\ndifferences = [["some", "singel"]]\n')
    with pytest.raises(ConfigError, match="has no sigmas"):
        study(TEXT.replace("[0.25]", "[]"))
