"""l1 noise, votes and bounds together: half-spaces, whose smoothed form flips at a known l1 distance.

Along an axis the theorem is tight, so the certificates must come near the distance and pass it at most as
often as alpha allows; in any other direction they must stay below it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from smoothheads.certify.algorithm import CertifyParams
from smoothheads.certify.budgets import AnytimeBudget, Budget, FixedBudget, RadiusBudget, TableBudget
from smoothheads.noise import NOISES, Noise, NoiseLaw
from smoothheads.types import Certificate, Counts, Grid, Phase, Pixels

SIGMA, ALPHA, FALSE_ALARM = 0.25, 0.05, 1e-6
L1 = [name for name, law in NOISES.items() if law.norm == "l1"]


def law_of(name: str) -> NoiseLaw:
    return NOISES.get(name)()


def credible(errors: int, runs: int) -> bool:
    return bool(stats.binom.sf(errors - 1, runs, ALPHA) > FALSE_ALARM)


@dataclass(frozen=True)
class HalfSpace:
    """Class 1 iff normal . x > level. Both laws are symmetric, so the smoothed answer flips on the plane, at
    an l1 distance of |normal . x - level| / max |normal|."""

    noise: Noise
    image: Pixels
    index: int
    normal: NDArray[np.float64]
    level: float

    def __call__(self, phase: Phase, count: int) -> Counts:
        blocks = range(count // self.noise.block_size)
        copies = np.concatenate([self.noise.noisy(self.image, self.index, phase, block) for block in blocks])
        answers = copies.reshape(count, -1) @ self.normal > self.level
        return np.bincount(answers, minlength=2).astype(np.int64)


def certificates(name: str, normal: NDArray[np.float64], distance: float, runs: int) -> list[Certificate]:
    image = np.random.default_rng(1).integers(0, 256, (1, 4, 4), dtype=np.uint8)
    level = float(image.ravel() / 255 @ normal) - distance * float(np.abs(normal).max())
    noise = NOISES.get(name)().keyed(SIGMA, Grid(255), 3, 100)
    budget, params = FixedBudget(n=200), CertifyParams(sigma=SIGMA, alpha=ALPHA, law=noise.law)
    return [budget.certify(HalfSpace(noise, image, index, normal, level), params) for index in range(runs)]


@pytest.mark.parametrize("name", L1)
@pytest.mark.parametrize("distance", [0.15, 0.3])
def test_along_an_axis_the_bound_is_tight(name: str, distance: float) -> None:
    runs, axis = 400, np.eye(16)[5]
    found = certificates(name, axis, distance, runs)
    assert credible(sum(each.radius > distance for each in found), runs)
    assert {each.prediction for each in found} <= {1, -1}
    assert np.mean([each.radius for each in found]) > 0.6 * distance
    hits, p = sum(each.k for each in found), law_of(name).probability(distance, SIGMA)
    assert stats.binomtest(hits, runs * 200, p).pvalue > FALSE_ALARM


@pytest.mark.parametrize(("name", "distance"), [("uniform", 0.42), ("laplace", 0.2)])
def test_the_gaussian_formula_would_claim_too_much(name: str, distance: float) -> None:
    p = law_of(name).probability(distance, SIGMA)
    assert law_of("gaussian").radius(p, SIGMA) > 1.05 * distance


@pytest.mark.parametrize("name", L1)
def test_in_any_direction_it_holds(name: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(5):
        normal, distance = rng.standard_normal(16), 0.2
        found = certificates(name, normal, distance, 60)
        assert credible(sum(each.radius > distance for each in found), 60)
        assert any(not each.abstained for each in found)


BUDGETS: dict[str, Budget] = {
    "fixed": FixedBudget(n0=20, n=200),
    "table": TableBudget(radii=(0.0, 0.1, 0.2, 0.3), n0=20, n=2000),
    "radius": RadiusBudget(n=2000, tolerance=0.1),
    "anytime": AnytimeBudget(n0=20, n=600),
}


@pytest.mark.parametrize("name", L1)
@pytest.mark.parametrize("kind", BUDGETS)
def test_every_budget_keeps_its_promise(kind: str, name: str) -> None:
    """Votes as for a half-space that is just nearer than 0.2, the hardest for a table with that radius."""
    rng, law, distance = np.random.default_rng(3), law_of(name), 0.2
    p = law.probability(distance, SIGMA) - 1e-9
    runs = 400

    def sample(phase: Phase, count: int) -> Counts:
        return rng.multinomial(count, (p, 1 - p))

    def certificate() -> Certificate:
        block = 20 if kind == "table" else 100
        return BUDGETS[kind].certify(sample, CertifyParams(sigma=SIGMA, alpha=ALPHA, law=law, block=block))

    found = [certificate() for _ in range(runs)]
    wrong = [
        each for each in found if not each.abstained and (each.prediction == 1 or each.radius >= distance)
    ]
    assert credible(len(wrong), runs)
    assert np.mean([each.radius for each in found]) > 0.4 * distance
