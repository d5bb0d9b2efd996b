"""Range checks that every configuration uses, and the types that carry them."""

from __future__ import annotations

import math
from functools import cache, partial
from types import UnionType
from typing import Annotated, Any, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from smoothheads.errors import SettingError, suggest

LEAST_ALPHA = 1e-15  # the tests' arithmetic is good for less, nobody's trust in a generator is
LEAST_SIGMA, MOST_SIGMA = 1e-6, 1e6  # far below a step of any grid, far above any image


def at_least(name: str, value: float, least: float) -> None:
    """Raises SettingError for a value below `least`, and for NaN and infinity."""
    if not (math.isfinite(value) and value >= least):
        raise SettingError(f"Choose {name} >= {least:g}, not {value:g}.", name)


def positive(name: str, value: float) -> None:
    """Raises SettingError for a value that is not a finite number above 0."""
    if not (math.isfinite(value) and value > 0):
        raise SettingError(f"Choose {name} > 0, not {value:g}.", name)


def between(name: str, value: float, low: float, high: float) -> None:
    """Raises SettingError for a value that is not strictly between `low` and `high`."""
    if not low < value < high:
        raise SettingError(f"Choose {low:g} < {name} < {high:g}, not {value:g}.", name)


Count: TypeAlias = Annotated[int, partial(at_least, least=1)]
Natural: TypeAlias = Annotated[int, partial(at_least, least=0)]
NotNegative: TypeAlias = Annotated[float, partial(at_least, least=0)]
Positive: TypeAlias = Annotated[float, partial(positive)]
Share: TypeAlias = Annotated[float, partial(between, low=0, high=1)]


def check_fields(config: Any) -> None:
    """Checks every field against the range, or the words, of its type, at which Python does not look.

    Numbers of another type whose meaning is clear, such as n=1e3 or sigma="0.25", are converted.
    """
    for name, hint in _hints(type(config)).items():  # type: ignore[arg-type]
        value = getattr(config, name)
        # `X | None` is None, or is checked like X.
        if get_origin(hint) in (Union, UnionType):
            members = [member for member in get_args(hint) if member is not type(None)]
            hint = members[0] if value is not None and len(members) == 1 else Any  # noqa: PLW2901
        # `Annotated[X, check]` is an X in the range of the check.
        kind, *checks = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        if kind in (int, float) and not isinstance(value, (bool, int, kind)):
            value = _as_number(kind, name, value)
            object.__setattr__(config, name, value)
        if get_origin(kind) is Literal and value not in get_args(kind):
            owner = getattr(config, "name", None)
            what = f"{name} of {owner}" if isinstance(owner, str) else name
            raise SettingError(f"Unknown {what} {value!r}: {suggest(str(value), get_args(kind))}", name)
        for check in checks:
            if isinstance(check, partial):
                check(name, value)


def _as_number(kind: type[int] | type[float], name: str, value: Any) -> int | float:
    """Returns the number that `value` stands for; raises SettingError for what is none, or not whole."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        raise SettingError(f"Set {name} to a number, not {value!r}.", name) from None
    if kind is int and not number.is_integer():
        raise SettingError(f"Set {name} to a whole number, not {value!r}.", name)
    return kind(number)


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def check_sigma(sigma: float) -> None:
    """Raises SettingError for a standard deviation of the noise that no image calls for."""
    if not LEAST_SIGMA <= sigma <= MOST_SIGMA:
        allowed = f"{LEAST_SIGMA:g} <= sigma <= {MOST_SIGMA:g}"
        raise SettingError(f"Choose {allowed}, not {sigma:g}: 0.25, 0.5 and 1 are usual.", "sigma")


def check_radius(radius: float) -> None:
    """Raises SettingError for a radius that is negative or not finite."""
    if not (math.isfinite(radius) and radius >= 0):
        raise SettingError(f"Choose a finite radius >= 0 in pixel units, not {radius:g}.", "radius")
