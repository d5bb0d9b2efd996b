"""From what a run was told to the budget of one image."""

from __future__ import annotations

import math

from smoothheads.certify.anytime import Anytime
from smoothheads.certify.budget import Budget, Fixed, Pair, Randomized
from smoothheads.certify.pilot import Radius
from smoothheads.certify.radius import ceiling
from smoothheads.certify.table import Table
from smoothheads.certify.theorem import theorem_of
from smoothheads.config import CertifyConfig
from smoothheads.errors import ConfigError
from smoothheads.noise import keyed_uniform

STEP = 0.25  # between the radii of the field's tables


def make_budget(config: CertifyConfig, *, label: int | None, index: int) -> Budget:
    """`label` serves a label-aware budget, `index` keys the randomised bound; all else is the run's."""
    n0, n, alpha = config.n0, config.n, config.alpha
    known = _known_label(label) if config.label_aware else None
    match config.budget:
        case "fixed":
            return _fixed(config, index)
        case "table":
            return Table(
                radii=table_radii(config), n0=n0, n_max=n, alpha=alpha, label=known, first=config.block
            )
        case "radius":
            return Radius(
                n_max=n,
                alpha=alpha,
                tolerance=config.tolerance,
                price=config.price,
                label=known,
                step=config.block,
            )
        case "anytime":
            target = math.inf if config.target is None else config.target
            return Anytime(n0=n0, alpha=alpha, step=config.block, n_max=n, target=target)


def table_radii(config: CertifyConfig) -> tuple[float, ...]:
    """As told, or steps of a quarter from 0 to the largest that n copies could show."""
    if config.radii is not None:
        return config.radii
    top = ceiling(config.n, config.alpha, config.sigma, theorem_of(config.noise).radius)
    steps = int(top / STEP)
    return tuple(STEP * step for step in range(steps + 1))


def _fixed(config: CertifyConfig, index: int) -> Budget:
    match config.bound:
        case "clopper-pearson":
            return Fixed(n0=config.n0, n=config.n, alpha=config.alpha)
        case "randomized":
            w = keyed_uniform(config.seed, index)
            return Randomized(n0=config.n0, n=config.n, alpha=config.alpha, w=w)
        case "pair":
            return Pair(n0=config.n0, n=config.n, alpha=config.alpha)


def _known_label(label: int | None) -> int:
    if label is None:
        raise ConfigError(
            "a label for a label-aware budget", "none", "certify a data set, or drop label_aware"
        )
    return label
