"""Range checks that every configuration uses: expected, got, what to do."""

from __future__ import annotations

import math
from functools import cache, partial
from typing import Annotated, Any, Literal, TypeAlias, get_args, get_origin, get_type_hints

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


Count: TypeAlias = Annotated[int, partial(at_least, least=1)]
Natural: TypeAlias = Annotated[int, partial(at_least, least=0)]
NotNegative: TypeAlias = Annotated[float, partial(at_least, least=0)]
Positive: TypeAlias = Annotated[float, partial(positive)]
Share: TypeAlias = Annotated[float, partial(between, low=0, high=1)]


def check_fields(config: Any) -> None:
    """Every field is in the range, or one of the words, that its type says; Python itself does not look."""
    for name, hint in _hints(type(config)).items():  # type: ignore[arg-type]
        value = getattr(config, name)
        if get_origin(hint) is Literal and value not in get_args(hint):
            raise one_of(f"{name} of {getattr(config, 'name', type(config).__name__)}", value, get_args(hint))
        for part in (hint, *get_args(hint)):  # X itself, or X of X | None
            for check in getattr(part, "__metadata__", ()):
                if isinstance(check, partial) and value is not None:
                    check(name, value)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def check_sigma(sigma: float) -> None:
    if not LEAST_SIGMA <= sigma <= MOST_SIGMA:
        raise ConfigError(
            f"{LEAST_SIGMA:g} <= sigma <= {MOST_SIGMA:g}", f"{sigma:g}", "0.25, 0.5 and 1 are usual"
        )


def check_radius(radius: float) -> None:
    if not (math.isfinite(radius) and radius >= 0):
        raise ConfigError("radius >= 0", f"{radius:g}", "give a finite radius in pixel units")
