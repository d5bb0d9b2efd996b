"""Range checks that every configuration uses: expected, got, what to do."""

from __future__ import annotations

import math
from typing import Any, Literal, get_args, get_origin, get_type_hints

from smoothheads.errors import ConfigError, one_of

LEAST_ALPHA = 1e-15  # the tests' arithmetic is good for less, nobody's trust in a generator is
LEAST_SIGMA, MOST_SIGMA = 1e-6, 1e6  # far below a step of any grid, far above any image


def at_least(name: str, value: float, least: float) -> None:
    if not (math.isfinite(value) and value >= least):
        raise ConfigError(f"{name} >= {least:g}", f"{value:g}", f"set {name} to {least:g} or more")


def positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise ConfigError(f"{name} > 0", f"{value:g}", f"set {name} to a positive number")


def between(name: str, value: float, low: float, high: float) -> None:
    """Strictly between."""
    if not low < value < high:
        raise ConfigError(f"{low:g} < {name} < {high:g}", f"{value:g}", f"choose {name} inside that range")


def check_choices(config: Any) -> None:
    """Every field that is one of a few words is one of them; Python itself does not look."""
    for name, hint in get_type_hints(type(config)).items():
        if get_origin(hint) is Literal and (value := getattr(config, name)) not in get_args(hint):
            raise one_of(f"{name} of {config.name}", value, get_args(hint))


def check_sigma(sigma: float) -> None:
    if not LEAST_SIGMA <= sigma <= MOST_SIGMA:
        raise ConfigError(
            f"{LEAST_SIGMA:g} <= sigma <= {MOST_SIGMA:g}", f"{sigma:g}", "0.25, 0.5 and 1 are usual"
        )


def check_radius(radius: float) -> None:
    if not (math.isfinite(radius) and radius >= 0):
        raise ConfigError("radius >= 0", f"{radius:g}", "give a finite radius in pixel units")
