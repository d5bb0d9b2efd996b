"""Radii reveal the n and alpha they were made with, and exclude the others."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, norm

from smoothheads.results.audit import audit
from smoothheads.results.infer import (
    SampleSettings,
    WrittenDigits,
    best_fit,
    digits_of,
    infer_settings,
    infer_sigma,
    named_sigma,
)
from smoothheads.results.results import Results


def _log(
    n: int, alpha: float, sigma: float, form: str = ".3", *, name: str = "log", misses: int = 12
) -> Results:
    """A network that is nearly always right: votes n, n - 1, ..., written as the field writes radii."""
    radii = [sigma * norm.ppf(beta.ppf(alpha, n - j, j + 1)) for j in range(misses)]
    texts = tuple(format(radius, form) for radius in radii)
    zeros = np.zeros(misses, dtype=np.int64)
    return Results(
        name=name,
        index=np.arange(misses),
        label=zeros,
        prediction=zeros,
        radius=np.array([float(text) for text in texts]),
        seconds=np.ones(misses),
        columns={"radius": texts},
    )


@pytest.mark.parametrize("sigma", [0.12, 0.25, 0.5, 1.0])
@pytest.mark.parametrize("alpha", [0.05, 0.01, 0.001, 0.0005, 0.0001])
@pytest.mark.parametrize("n", [1000, 10**4, 10**5])
def test_settings_are_revealed(n: int, alpha: float, sigma: float) -> None:
    fits = infer_settings(_log(n, alpha, sigma), sigma)
    assert fits[0].settings == (n, alpha)
    assert fits[0].possible
    assert best_fit(fits) is not None or sigma == 0.5  # where three digits are coarsest


def test_published_rungs() -> None:
    """alpha .001: .953 .935 .922 .913 .905; alpha .01: .978 .955 .941 .929 .920."""
    assert _log(10**5, 0.001, 0.25, misses=5).columns["radius"] == (
        "0.953",
        "0.935",
        "0.922",
        "0.913",
        "0.905",
    )
    assert _log(10**5, 0.01, 0.25, misses=5).columns["radius"] == ("0.978", "0.955", "0.941", "0.929", "0.92")


def test_more_samples_are_no_excuse() -> None:
    """150,000 samples at alpha .001 reach nearly as far as 100,000 at .01, but their rungs lie elsewhere."""
    other = SampleSettings(150_000, 0.001)
    fits = infer_settings(_log(10**5, 0.01, 0.25), 0.25, [other])
    assert not next(each for each in fits if each.settings == other).possible
    assert (best := best_fit(fits)) is not None
    assert best.settings == (10**5, 0.01)


def test_a_radius_above_the_top_excludes() -> None:
    fits = infer_settings(_log(10**5, 0.01, 0.25), 0.25)
    fit = next(each for each in fits if each.settings == (10**5, 0.001))
    assert not fit.possible
    assert fit.missed == (0.978, 0.955)


@pytest.mark.parametrize("form", [".6f", ".4f"])
def test_more_digits_tell_more(form: str) -> None:
    coarse, fine = (infer_settings(_log(10**5, 0.001, 0.5, f), 0.5) for f in (".3", form))
    assert fine[0].chance < coarse[0].chance < 0.05


def test_radii_cut_off_instead_of_rounded_fit_as_well() -> None:
    log = _log(10**5, 0.001, 0.5, ".8f")
    cut = tuple(text[:-2] for text in log.columns["radius"])
    floored = Results(
        "l",
        log.index,
        log.label,
        log.label,
        np.array([float(t) for t in cut]),
        log.seconds,
        columns={"radius": cut},
    )
    fits = infer_settings(floored, 0.5)
    assert (best := best_fit(fits)) is not None
    assert best.settings == (10**5, 0.001)


def test_small_radii_tell_nothing() -> None:
    log = _log(10**5, 0.001, 1.0)
    small = Results(
        "l",
        log.index,
        log.label,
        log.label,
        log.radius * 0 + 0.25,
        log.seconds,
        columns={"radius": ("0.25",) * 12},
    )
    fits = infer_settings(small, 1.0)
    assert best_fit(fits) is None
    none = Results("l", log.index, log.label, log.label, log.radius * 0, log.seconds)
    assert infer_settings(none, 1.0) == ()
    assert infer_sigma(none) is None


@pytest.mark.parametrize(
    ("name", "sigma"),
    [
        ("sigma_0.25", 0.25),
        ("x-sigma-1-y", 1.0),
        ("smoothmix-0.50", 0.5),
        ("sigma025", 0.25),
        ("a-0.12", 0.12),
    ],
)
def test_sigma_from_the_name(name: str, sigma: float) -> None:
    assert named_sigma(name) == sigma
    assert infer_sigma(_log(10**5, 0.001, sigma, name=name, misses=1)) == sigma


def test_radii_come_before_the_name() -> None:
    log = _log(10**5, 0.001, 0.25, name="mix-eta-0.5", misses=20)
    assert infer_sigma(log) == 0.25
    found = {finding.code: finding for finding in audit(log, n=10**5, alpha=0.001).findings}
    assert "says sigma 0.5, but its radii fit sigma 0.25" in found["sigma"].message
    assert "settings" not in found


def test_sigma_from_the_radii() -> None:
    for sigma in (0.12, 0.25, 0.5, 1.0):
        assert infer_sigma(_log(10**5, 0.001, sigma, misses=20)) == sigma


def test_digits() -> None:
    assert digits_of(_log(10**5, 0.001, 0.25)) == WrittenDigits(3, 3)
    assert digits_of(_log(10**5, 0.001, 1.0)).unit(3.81) == pytest.approx(0.01)
    assert digits_of(_log(10**5, 0.001, 0.25, ".6f")).unit(0.9) == pytest.approx(1e-6)
