"""Infers n and alpha from the largest radii of a log, whatever its text says.

With n samples a radius can only be that of the bound for n - j hits, j = 0, 1, 2, ... Near the top these
possible radii lie further apart than the digits of a log, so radii that were really made with another n or
alpha fall between them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from smoothheads.certify.bounds import clopper_pearson_lower, max_radius
from smoothheads.noise import NoiseLaw
from smoothheads.results.results import Results

ALPHAS = (0.05, 0.01, 0.001, 0.0005, 0.0001)
SAMPLES = (10**2, 10**3, 10**4, 10**5, 10**6)
SIGMAS = (0.12, 0.25, 0.5, 1.0)
_BEYOND_DOUBT = 1e-4  # chance that radii of another sigma fit as well, where a name says otherwise
_CONVINCING = 0.05  # chance that radii of other settings fit as well
_INFORMATIVE = 1.3  # units of the last digit between two possible radii that still tell something
_LARGEST = 40  # radii that are looked at


class SampleSettings(NamedTuple):
    n: int
    alpha: float

    def __str__(self) -> str:
        return f"n = {self.n:,} with alpha = {self.alpha:g}"


@dataclass(frozen=True, slots=True)
class Fit:
    """How the largest radii agree with the radii that some settings can give."""

    settings: SampleSettings
    matched: int
    missed: tuple[float, ...]
    """Radii that these settings cannot give."""
    chance: float
    """Probability that as many radii fit by accident; 1 where the digits are too coarse to tell."""

    @property
    def possible(self) -> bool:
        return not self.missed


@dataclass(frozen=True, slots=True)
class InferredSettings:
    sigma: float
    fits: tuple[Fit, ...]
    """Most convincing first; impossible settings last."""

    @property
    def best_fit(self) -> Fit | None:
        """The settings that the radii reveal, None if several are about as likely."""
        best = self.fits[0]
        return best if best.possible and best.chance < _CONVINCING else None

    def fit(self, settings: SampleSettings) -> Fit:
        return next(fit for fit in self.fits if fit.settings == settings)


class WrittenDigits(NamedTuple):
    """How a log writes radii: three significant digits as the field does, or a number of decimals."""

    significant: int
    decimals: int

    def unit(self, radius: float) -> float:
        """Returns one unit of the last digit of a radius."""
        if self.significant > 3:
            return 10.0**-self.decimals
        return float(10.0 ** (math.floor(math.log10(radius)) - 2))

    def room(self, radius: float) -> float:
        """Returns how far the true radius may lie from the text: three digits are rounded to the nearest,
        more may have been cut off."""
        return self.unit(radius) * (0.5 if self.significant <= 3 else 1.0) * (1 + 1e-6)


def infer_settings(
    log: Results, sigma: float, stated: Sequence[SampleSettings] = ()
) -> InferredSettings | None:
    """Returns how well n and alpha explain the largest radii; None where the log has no positive radius.

    Args:
        log: The certified images.
        sigma: The standard deviation of the noise.
        stated: Settings that are tried besides the usual ones.
    """
    radii = np.unique(log.radius[~log.abstained & (log.radius > 0)])[::-1][:_LARGEST]
    if not len(radii):
        return None
    digits = digits_of(log)
    usual = (SampleSettings(n, alpha) for n, alpha in product(SAMPLES, ALPHAS))
    candidates = sorted({*usual, *stated})
    fits = [_fit(radii.tolist(), digits, log.law, sigma, settings) for settings in candidates]
    return InferredSettings(sigma, tuple(sorted(fits, key=lambda fit: (not fit.possible, fit.chance))))


def infer_sigma(log: Results) -> float | None:
    """Returns the sigma that the radii reveal, None where nothing tells.

    That is the usual sigma which the radii fit beyond doubt; else what the name says, if the radii allow it;
    else the sigma that they fit best.
    """
    named = named_sigma(log.name)
    tried = [found for sigma in {*SIGMAS, named or 1.0} if (found := infer_settings(log, sigma)) is not None]
    if not tried:
        return named
    best = min(tried, key=lambda each: (not each.fits[0].possible, each.fits[0].chance))
    if best.fits[0].possible and best.fits[0].chance < _BEYOND_DOUBT:
        return best.sigma
    if named is not None and all(each.fits[0].possible for each in tried if each.sigma == named):
        return named
    return best.sigma if best.best_fit is not None else None


def named_sigma(name: str) -> float | None:
    """Returns what a log's name says: `sigma_0.25`, `sigma025`, `gaussian-0.25`; a hint, no more."""
    match = re.search(r"(?:sigma|noise)[_=-]?(\d*\.\d+|\d+)", name) or re.search(r"(\d*\.\d+)$", name)
    if match is None:
        return None
    digits = match[1]
    value = float(f"0.{digits[1:]}" if digits.startswith("0") and digits.isdigit() else digits)
    return value if 0 < value <= 10 else None


def digits_of(log: Results) -> WrittenDigits:
    texts = [text.lower().partition("e")[0].lstrip("+-") for text in log.columns.get("radius", ())]
    significant = [len(text.replace(".", "").lstrip("0")) for text in texts]
    decimals = [len(text.partition(".")[2]) for text in texts]
    return WrittenDigits(max(significant, default=0), max(decimals, default=0))


def radius_grid(
    law: NoiseLaw, sigma: float, settings: SampleSettings, digits: WrittenDigits
) -> Iterator[tuple[float, float]]:
    """Yields the radii that settings can give, from the top, each with its distance to the next one.

    It ends where the digits of the log no longer tell two neighbours apart.
    """
    n, alpha = settings
    bounds = (clopper_pearson_lower(n - j, n, alpha) for j in range(min(n, 400)))
    for radius, following in pairwise(law.radius(bound, sigma) for bound in bounds):
        if following <= 0 or radius - following < _INFORMATIVE * digits.unit(radius):
            return
        yield radius, radius - following


def _fit(
    radii: list[float], digits: WrittenDigits, law: NoiseLaw, sigma: float, settings: SampleSettings
) -> Fit:
    # A radius above the largest possible one excludes the settings at once.
    top = max_radius(*settings, sigma, law.radius)
    above = tuple(radius for radius in radii if radius > top + digits.room(radius))
    if above:
        return Fit(settings, 0, above, 1.0)

    # Every other radius lies on the grid or between two of its points. A random radius would lie within
    # `room` of the grid with probability 2 room / gap: the product is the chance of an accidental fit.
    grid = list(radius_grid(law, sigma, settings, digits))
    matched, missed, chance = 0, [], 1.0
    for radius in radii:
        near = min(grid, key=lambda point: abs(point[0] - radius), default=None)
        if near is None or radius < grid[-1][0] - digits.room(radius):
            break
        if abs(near[0] - radius) <= digits.room(radius):
            matched += 1
            chance *= min(1.0, 2 * digits.room(radius) / near[1])
        else:
            missed.append(radius)
    return Fit(settings, matched, tuple(missed), chance)
