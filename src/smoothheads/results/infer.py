"""Infers n and alpha from the largest radii of a log, whatever its text says.

With n samples a radius can only be that of the bound for n - j hits, j = 0, 1, 2, ... Near the top these
possible radii lie further apart than the digits of a log, so radii that were really made with another n or
alpha fall between them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
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
    """Tells how the largest radii agree with the radii that some settings can give."""

    settings: SampleSettings
    matched: int
    missed: tuple[float, ...]
    """Radii that these settings cannot give."""
    chance: float
    """Probability that as many radii fit by accident; 1 where the digits are too coarse to tell."""

    @property
    def possible(self) -> bool:
        return not self.missed


class WrittenDigits(NamedTuple):
    """Tells how a log writes radii: three significant digits as the field does, or a number of decimals."""

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


OURS = WrittenDigits(significant=7, decimals=6)


def infer_settings(log: Results, sigma: float, stated: Sequence[SampleSettings] = ()) -> tuple[Fit, ...]:
    """Returns how well each n and alpha explains the largest radii, the most convincing first.

    Impossible settings come last. Without a positive radius there is nothing to explain, so the result is
    empty.

    Args:
        stated: Settings that are tried besides the usual ones.
    """
    radii = np.unique(log.radius[~log.abstained & (log.radius > 0)])[::-1][:_LARGEST].tolist()
    if not radii:
        return ()
    usual = (SampleSettings(n, alpha) for n, alpha in product(SAMPLES, ALPHAS))
    fits = [fit(radii, digits_of(log), log.law, sigma, each) for each in sorted({*usual, *stated})]
    return tuple(sorted(fits, key=lambda each: (not each.possible, each.chance)))


def best_fit(fits: Sequence[Fit]) -> Fit | None:
    """Returns the settings that the radii reveal, None if several are about as likely."""
    return fits[0] if fits and fits[0].possible and fits[0].chance < _CONVINCING else None


def fit(
    radii: Sequence[float], digits: WrittenDigits, law: NoiseLaw, sigma: float, settings: SampleSettings
) -> Fit:
    """Compares radii with those that some settings can give.

    Args:
        radii: The largest radii of a log, in falling order.
        digits: The precision with which the log writes them.
    """
    # A radius above the largest possible one excludes the settings at once.
    n, alpha = settings
    top = max_radius(n, alpha, sigma, law.radius)
    if above := tuple(radius for radius in radii if radius > top + digits.room(radius)):
        return Fit(settings, 0, above, 1.0)

    # The grid of possible radii from the top, each with its distance to the next one, as far down as the
    # digits of the log tell two neighbours apart.
    grid: list[tuple[float, float]] = []
    bounds = (clopper_pearson_lower(n - j, n, alpha) for j in range(min(n, 400)))
    for radius, following in pairwise(law.radius(bound, sigma) for bound in bounds):
        if following <= 0 or radius - following < _INFORMATIVE * digits.unit(radius):
            break
        grid.append((radius, radius - following))

    # Every other radius lies on the grid or between two of its points. A random radius would lie within
    # `room` of the grid with probability 2 room / gap: the product is the chance of an accidental fit.
    matched, missed, chance = 0, [], 1.0
    for radius in radii:
        if not grid or radius < grid[-1][0] - digits.room(radius):
            break
        nearest, gap = min(grid, key=lambda point: abs(point[0] - radius))
        if abs(nearest - radius) <= digits.room(radius):
            matched += 1
            chance *= min(1.0, 2 * digits.room(radius) / gap)
        else:
            missed.append(radius)
    return Fit(settings, matched, tuple(missed), chance)


def infer_sigma(log: Results) -> float | None:
    """Returns the sigma that the radii reveal, None where nothing tells.

    That is the usual sigma which the radii fit beyond doubt; else what the name says, if the radii allow it;
    else the sigma that they fit best.
    """
    named = named_sigma(log.name)
    tried = {sigma: infer_settings(log, sigma) for sigma in {*SIGMAS, named or 1.0}}
    sigma, fits = min(tried.items(), key=lambda each: [(not f.possible, f.chance) for f in each[1][:1]])
    if not fits:
        return named
    # Radii that leave no doubt come before the name.
    if fits[0].possible and fits[0].chance < _BEYOND_DOUBT:
        return sigma
    if named is not None and tried[named][0].possible:
        return named
    return sigma if best_fit(fits) is not None else None


def named_sigma(name: str) -> float | None:
    """Returns what a log's name says: `sigma_0.25`, `sigma025`, `gaussian-0.25`; a hint, no more."""
    # After the word sigma or noise, else a decimal number at the end.
    match = re.search(r"(?:sigma|noise)[_=-]?(\d*\.\d+|\d+)", name) or re.search(r"(\d*\.\d+)$", name)
    if match is None:
        return None
    # `025` stands for 0.25.
    digits = match[1]
    value = float(f"0.{digits[1:]}" if digits.startswith("0") and digits.isdigit() else digits)
    return value if 0 < value <= 10 else None


def digits_of(log: Results) -> WrittenDigits:
    """Returns how the radii of a log are written, judged by the longest of them."""
    if log.rows:
        return OURS
    texts = [text.lower().partition("e")[0].lstrip("+-") for text in log.columns.get("radius", ())]
    significant = [len(text.replace(".", "").lstrip("0")) for text in texts]
    decimals = [len(text.partition(".")[2]) for text in texts]
    return WrittenDigits(max(significant, default=0), max(decimals, default=0))
