from __future__ import annotations

import numpy as np
import pytest

from smoothheads.errors import ConfigError
from smoothheads.noise import NOISES, NoiseLaw
from smoothheads.types import Grid

P = (0.500001, 0.55, 0.75, 0.9, 0.999, 0.99999)


@pytest.mark.parametrize("name", NOISES.names())
def test_every_noise_has_its_theorem(name: str) -> None:
    noise, law = NOISES.get(name)().keyed(0.25, Grid(255), 0, 10), NOISES.get(name)()
    assert noise.law == law
    assert ("l1 norm" in noise.scope) == (law.norm == "l1")


@pytest.mark.parametrize("law", [law() for _, law in NOISES.items()])
def test_one_theorem_in_three_forms(law: NoiseLaw) -> None:
    """Radius, its inverse and the plan agree, each rounded towards less."""
    sigma = 0.25
    radii = [law.radius(p, sigma) for p in P]
    assert radii == sorted(radii)
    assert law.radius(0.5, sigma) == 0.0
    for p, radius in zip(P, radii, strict=True):
        assert law.probability(radius, sigma) == pytest.approx(p, rel=1e-9)
        assert law.radius(min(law.probability(radius, sigma), 1 - 1e-15), sigma) >= radius * (1 - 1e-9)
        assert law.radius(p, 2 * sigma) == pytest.approx(2 * radius)
    np.testing.assert_allclose(law.unit_radius(np.array(P)), np.array(radii) / sigma, rtol=1e-9)


def test_unknown_noise_is_refused() -> None:
    with pytest.raises(ConfigError, match="Unknown noise 'uniforn': did you mean 'uniform'"):
        NOISES.get("uniforn")
