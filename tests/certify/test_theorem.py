from __future__ import annotations

import numpy as np
import pytest

from smoothheads.certify.theorem import THEOREMS, Theorem, theorem_of
from smoothheads.errors import ConfigError
from smoothheads.noise import make_noise
from smoothheads.types import Grid

P = (0.500001, 0.55, 0.75, 0.9, 0.999, 0.99999)


@pytest.mark.parametrize("name", THEOREMS)
def test_every_noise_has_its_theorem(name: str) -> None:
    noise, theorem = make_noise(name, 0.25, Grid(255), 0, 10), theorem_of(name)
    assert noise.name == name
    assert ("l1 norm" in noise.scope) == (theorem.norm == "l1")


@pytest.mark.parametrize("theorem", THEOREMS.values())
def test_one_theorem_in_four_forms(theorem: Theorem) -> None:
    """Radius, its inverse, the pair of two classes and the plan agree, each rounded towards less."""
    sigma = 0.25
    radii = [theorem.radius(p, sigma) for p in P]
    assert radii == sorted(radii)
    assert theorem.radius(0.5, sigma) == 0.0
    for p, radius in zip(P, radii, strict=True):
        assert theorem.probability(radius, sigma) == pytest.approx(p, rel=1e-9)
        assert theorem.radius(min(theorem.probability(radius, sigma), 1 - 1e-15), sigma) >= radius * (
            1 - 1e-9
        )
        assert theorem.pair_radius(p, 1 - p, sigma) == pytest.approx(radius, rel=1e-9, abs=1e-12)
        assert theorem.radius(p, 2 * sigma) == pytest.approx(2 * radius)
    np.testing.assert_allclose(theorem.unit_radius(np.array(P)), np.array(radii) / sigma, rtol=1e-9)


def test_unknown_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match="a known noise, got 'uniforn'; did you mean 'uniform'"):
        theorem_of("uniforn")
