from __future__ import annotations

import warnings

import pytest

from smoothheads.objectives import Consistency, Gaussian, ObjectiveConfig, SmoothMix, TeachingConfig
from smoothheads.objectives.config import PRESETS, resolve_preset, warn_if_unlike


def test_the_presets_differ_where_paper_and_code_do() -> None:
    paper, official, published = (
        resolve_preset(ObjectiveConfig(preset=preset, method=SmoothMix()))
        for preset in ("paper", "official", "official-2022")
    )
    assert (paper.teaching.hard_weight_source, paper.teaching.tie) == ("teacher", "easy")
    for code in (official, published):
        assert (code.teaching.hard_weight_source, code.teaching.tie) == ("student", "zero")
    masks = [(c.method.mask, c.method.weigh_mix) for c in (paper, official, published)]  # type: ignore[attr-defined]
    assert masks == [(None, True), (None, True), (True, False)]


def test_the_official_consistency_stops_the_mean() -> None:
    flows = {
        preset: resolve_preset(ObjectiveConfig(preset=preset, method=Consistency())).method.mean_gradient  # type: ignore[arg-type, attr-defined]
        for preset in PRESETS
    }
    assert flows == {"paper": True, "official": False, "official-2022": False}


def test_fields_that_were_set_stay() -> None:
    config = ObjectiveConfig(
        preset="official", teaching=TeachingConfig(tie="easy"), method=Consistency(mean_gradient=True)
    )
    resolved = resolve_preset(config)
    assert resolved.teaching.tie == "easy"
    assert resolved.method == config.method
    assert resolved.teaching.hard_weight_source == "student"


def test_resolving_twice_changes_nothing() -> None:
    once = resolve_preset(ObjectiveConfig(preset="official", method=Gaussian()))
    assert resolve_preset(once) == once


def test_the_old_codes_weighting_of_heads_is_said_to_be_left_out() -> None:
    with pytest.warns(UserWarning, match="uniform for 5 of them but not for 3"):
        warn_if_unlike("official-2022", 3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_if_unlike("official-2022", 5)
        warn_if_unlike("official", 3)
