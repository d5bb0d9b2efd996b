"""A study file: what it stands for, and what is said about mistakes in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.studies.small import TEXT, study

from smoothheads import recipes
from smoothheads.errors import ConfigError
from smoothheads.studies.parse import line_of, read_study


def test_changes_of_all_arms_of_the_arm_and_of_the_setting_are_laid_over_the_recipe() -> None:
    found = study(TEXT + "[settings.long]\ntrain.epochs = 3\n")
    config = found.run_config(found.arm("some"), "long", 0.5, 7)
    assert (config.train.epochs, config.train.sigma, config.train.seed) == (3, 0.5, 7)
    assert (config.model.heads, config.data.subset.first) == (2, 40)


def test_no_machine_chooses_the_precision_of_a_study() -> None:
    """The recipe says auto, which is bfloat16 on some processors: rows of one study were mixed."""
    assert recipes.get("digits-single").train.precision == "auto"
    found = study(
        TEXT + '[arms.short]\ntrain.precision = "bfloat16"\n[arms.auto]\ntrain.precision = "auto"\n'
    )
    told = {arm.name: found.run_config(arm, "", 0.25, 0).train.precision for arm in found.arms}
    assert told.pop("short") == "bfloat16"
    assert set(told.values()) == {"float32"}


def test_no_machine_chooses_the_engine_of_a_study() -> None:
    """A trial chose one for every row, by what else the machine was doing."""
    for setting in ('engine = "auto"', 'blocks_per_pass = "auto"'):
        with pytest.raises(ConfigError, match=r"one engine for all rows.*'auto'"):
            study(TEXT.replace("[certify]\n", f"[certify]\n{setting}\n"))


def test_another_method_replaces_the_recipes_method_with_its_fields() -> None:
    found = study(TEXT + '[settings.c]\nobjective.method = {name = "consistency", strength = 5.0}\n')
    method = found.run_config(found.arm("single"), "c", 0.25, 0).objective.method
    assert method.name == "consistency"


@pytest.mark.parametrize(
    ("old", "new", "line", "near"),
    [
        ("train.epochs", "train.epoch", 8, "epochs"),
        ("members", "member", 14, "members"),
        ("n0 = 20", "m0 = 20", 22, "n0"),
        ("offset", "offsett", 26, "offset"),
        ("sigmas", "sigma", 3, "sigmas"),
        ('"digits-some"', '"digits-somme"', 17, "digits-some"),
    ],
)
def test_an_unknown_name_is_reported_with_its_line_and_the_nearest(
    old: str, new: str, line: int, near: str
) -> None:
    message = rf"(?s)(?=.*line {line} of small\.toml).*did you mean '{near}'"
    with pytest.raises(ConfigError, match=message):
        study(TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("seeds = [0, 1]", "seeds = [0.5]", "integers >= 0 at seeds (line 4 of small.toml), got [0.5]"),
        ("seeds = [0, 1]", "seeds = [-1]", "integers >= 0 at seeds (line 4 of small.toml), got [-1]"),
        ("seeds = [0, 1]", "seeds = [true]", "integers >= 0 at seeds (line 4 of small.toml), got [True]"),
        ("sigmas = [0.25]", 'sigmas = ["a"]', "numbers at sigmas (line 3 of small.toml), got ['a']"),
        ("[images]", '[show]\nradii = ["a"]\n[images]', "numbers at show.radii (line 26 of small.toml)"),
        ("[images]", "[show]\ndifferences = [1]\n[images]", "in show.differences (line 26 of small.toml)"),
    ],
)
def test_what_is_no_seed_or_no_number_is_refused_with_its_line(old: str, new: str, said: str) -> None:
    """A seed of 0.5 was once taken for 0: the networks of another study."""
    with pytest.raises(ConfigError, match=re.escape(said)):
        study(TEXT.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("[arms.single]", '[arms.single]\nstart = "single"', "single from single"),
        ("[arms.single]", "[arms.single]\nsigmas = [0.7]", r"got 0\.7"),
        ("[arms.single]", "[arms.single]\nmodel = 3", r"a table at arms\.single\.model .line 12"),
        ("[arms.single]", "[arms.single]\ntrain.sigma = 0.5", r"no sigma of its own at train\.sigma"),
        ("[arms.single]", '[arms.single]\nlabel = "pair"', "'pair' twice"),
        (
            "members = 2",
            'members = 2\naggregation = "head-9"',
            r"aggregation of arm pair \(heads: 2\).*line 15",
        ),
        ("seeds = [0, 1]", "seeds = [0, 1000]", "0 and 1000: member k"),
        ("n = 50", 'n = 50\naggregation = "head-1"', r"at certify\.aggregation"),
        ("[images]", "[show]\ndifferences = 3\n[images]", r"pairs \[this, baseline\]"),
        ("[images]", "[show]\ndifferences = [[1, 2]]\n[images]", r"pairs \[this, baseline\]"),
        ("[images]", "[settings.x]\ntrain = 3\n[images]", r"a table at settings\.x\.train"),
    ],
)
def test_what_a_study_would_ignore_or_stumble_over_is_refused(old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        study(TEXT.replace(old, new))


def test_a_name_with_a_dot_that_has_no_quotes_is_explained() -> None:
    with pytest.raises(ConfigError, match=r"line 28 .*got '5'.*a name that holds a dot needs quotes"):
        study(TEXT + "[arms.lambda-0.5]\n")
    assert study(TEXT + '[arms."lambda-0.5"]\n').arm("lambda-0.5").recipe == "digits-single"
    with pytest.raises(ConfigError, match=r"'train\.epoch'.*line 29 "):
        study(TEXT + '[arms."lambda-0.5"]\ntrain.epoch = 3\n')


def test_lines_are_found_in_tables_dotted_keys_and_inline_tables() -> None:
    text = "[a]\nb.c = 1\n[a.d]\ne = 2\nf = {g = 3}\n"
    assert [line_of(text, path) for path in (("a", "b", "c"), ("a", "d", "e"), ("a", "d", "f", "g"))] == [
        2,
        4,
        5,
    ]


def test_no_file_broken_toml_and_arms_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a study file at"):
        read_study(tmp_path / "none.toml")
    (tmp_path / "broken.toml").write_text("arms = [")
    with pytest.raises(ConfigError, match="TOML in"):
        read_study(tmp_path / "broken.toml")
    with pytest.raises(ConfigError, match="Unknown arm of small"):
        study(TEXT + '[show]\ndifferences = [["some", "singel"]]\n')
    with pytest.raises(ConfigError, match="at least one sigma"):
        study(TEXT.replace("[0.25]", "[]"))
