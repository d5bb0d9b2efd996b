from __future__ import annotations

import typing
from collections.abc import Callable

import pytest

from smoothheads import config as cfg
from smoothheads.errors import ConfigError

METHODS: tuple[type[cfg.Method], ...] = typing.get_args(cfg.Method)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_survives_json_and_is_known_by_its_name(method: type[cfg.Method]) -> None:
    config = cfg.ObjectiveConfig(method=method())
    data = cfg.to_dict(config)
    assert data["method"]["name"] == method.name
    assert cfg.from_dict(cfg.ObjectiveConfig, data) == config


def test_names_are_unique_and_every_method_has_draws() -> None:
    assert len({method.name for method in METHODS}) == len(METHODS)
    assert all(method().draws >= 1 for method in METHODS)


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: cfg.Gaussian(draws=0), "draws >= 1"),
    (lambda: cfg.Stability(strength=-1.0), "strength >= 0"),
    (lambda: cfg.Consistency(draws=1), "draws >= 2"),
    (lambda: cfg.SmoothMix(steps=2, mix_step=2), "mix_step < steps"),
    (lambda: cfg.SmoothMix(max_norm=0.0), "max_norm > 0"),
    (lambda: cfg.SmoothAdv(draws=1, attack="gradient-free"), "draws >= 2 for a gradient-free attack"),
    (lambda: cfg.SmoothAdv(epsilon=0.0), "epsilon > 0"),
    (lambda: cfg.Macer(temperature=0.0), "temperature > 0"),
    (lambda: cfg.CatRs(teacher_draws=0), "teacher_draws >= 1"),
    (lambda: cfg.AcrTargeted(keep=1.5), "0 <= keep <= 1"),
    (lambda: cfg.AcrTargeted(weigh_draws=13), "weigh_draws >= 14"),
    (lambda: cfg.Drt(gradient_diversity=-0.1), "gradient_diversity >= 0"),
    (lambda: cfg.TeachingConfig(pace="budget", weights="hard"), "soft weights with pace budget"),
    (lambda: cfg.TeachingConfig(budget=1.0), "0 < budget < 1"),
    (lambda: cfg.TeachingConfig(window=1), "window >= 2"),
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message for _, message in WRONG])
def test_settings_out_of_range_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
