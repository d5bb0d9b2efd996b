from __future__ import annotations

from collections.abc import Callable

import pytest

from smoothheads.config import from_dict, to_dict
from smoothheads.errors import ConfigError
from smoothheads.objectives import METHODS as REGISTRY
from smoothheads.objectives import (
    AcrTargeted,
    CatRs,
    Consistency,
    Drt,
    Gaussian,
    Macer,
    Method,
    ObjectiveConfig,
    SmoothAdv,
    SmoothMix,
    Stability,
    TeachingConfig,
)

METHODS = [kind for _, kind in REGISTRY.items()]


@pytest.mark.parametrize("method", METHODS)
def test_every_method_survives_json_and_is_known_by_its_name(method: type[Method]) -> None:
    config = ObjectiveConfig(method=method())
    data = to_dict(config)
    assert data["method"]["name"] == method.name
    assert from_dict(ObjectiveConfig, data) == config


def test_names_are_unique_and_every_method_has_draws() -> None:
    assert len({method.name for method in METHODS}) == len(METHODS)
    assert all(method().draws >= 1 for method in METHODS)


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: Gaussian(draws=0), "draws >= 1"),
    (lambda: Stability(strength=-1.0), "strength >= 0"),
    (lambda: Consistency(draws=1), "draws >= 2"),
    (lambda: SmoothMix(steps=2, mix_step=2), "set mix_step below steps"),
    (lambda: SmoothMix(max_norm=0.0), "max_norm > 0"),
    (lambda: SmoothAdv(epsilon=0.0), "epsilon > 0"),
    (lambda: Macer(temperature=0.0), "temperature > 0"),
    (lambda: CatRs(teacher_draws=0), "teacher_draws >= 1"),
    (lambda: AcrTargeted(keep=1.5), "keep is a fraction of the draws"),
    (lambda: AcrTargeted(weigh_draws=13), "weigh_draws >= 14"),
    (lambda: Drt(gradient_diversity=-0.1), "gradient_diversity >= 0"),
    (lambda: TeachingConfig(pace="own-accuracy", weights="superloss"), "has no lambda"),
    (lambda: TeachingConfig(quantile_last=1.0), "0 < quantile_last < 1"),
    (lambda: TeachingConfig(window=1), "window >= 2"),
    (lambda: TeachingConfig(lambda_first=0.0), "lambda_first > 0"),
    (lambda: TeachingConfig(weights="sofd"), "did you mean 'soft'"),  # type: ignore[arg-type]
    (lambda: Consistency(form="klx"), "form of consistency"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "message"), WRONG, ids=[message for _, message in WRONG])
def test_settings_out_of_range_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()
