"""A small honest run to write, read and spoil."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.theorem import theorem_of
from smoothheads.results.ledger import Ledger
from smoothheads.results.manifest import Manifest
from smoothheads.results.row import Row
from smoothheads.types import ABSTAIN, Votes

RULES = ("ensemble", "head-1", "head-2")
CLASSES, SIGMA, ALPHA, N0, N = 4, 0.5, 0.001, 20, 1000


def votes_of(generator: np.random.Generator, label: int, share: float, n: int) -> Votes:
    p = np.full(CLASSES, (1 - share) / (CLASSES - 1))
    p[label] = share
    return Votes(RULES, generator.multinomial(n, p, size=len(RULES)))


def honest_row(index: int, seed: int = 0, alpha: float = ALPHA, noise: str = "grid") -> Row:
    """CERTIFY on votes of a designed network: the share of right votes falls with the index."""
    generator = np.random.default_rng([seed, index])
    label = index % CLASSES
    share = max(0.2, 1 - 0.01 * index)
    selection, votes = votes_of(generator, label, share, N0), votes_of(generator, label, share, N)
    candidate = int(np.argmax(selection.of()))
    k = int(votes.of()[candidate])
    p_lower = clopper_pearson_lower(k, N, alpha)
    radius = theorem_of(noise).radius(p_lower, SIGMA)
    return Row(
        index=index,
        label=label,
        prediction=candidate if radius > 0 else ABSTAIN,
        radius=radius,
        seconds=0.25 + index,
        n0=N0,
        n=N,
        k=k,
        p_lower=p_lower,
        selection=selection,
        votes=votes,
    )


@pytest.fixture
def row() -> Callable[..., Row]:
    return honest_row


@pytest.fixture
def manifest() -> Manifest:
    certify: dict[str, Any] = {"sigma": SIGMA, "alpha": ALPHA, "n0": N0, "n": N, "rule": "ensemble"}
    certify |= {"seed": 0, "block": 100, "noise": "grid"}
    return {
        "created": "2026-01-01T00:00:00",
        "certify": certify,
        "engine": {"engine": "torch", "precision": "float32"},
        "rules": list(RULES),
        "classes": CLASSES,
        "indices": {"first": 0, "step": 5, "count": 12},
        "correction": 0.0,
        "weights": "0" * 64,
        "data": "1" * 64,
        "versions": {"torch": "2.13.0"},
    }


@pytest.fixture
def run(tmp_path: Path, manifest: Manifest) -> Callable[..., Path]:
    """A complete ledger folder."""

    def make(
        name: str = "run", seed: int = 0, alpha: float = ALPHA, noise: str = "grid", **changes: Any
    ) -> Path:
        told = manifest | {"certify": {**manifest["certify"], "alpha": alpha, "noise": noise}} | changes
        with Ledger.open(tmp_path / name, told) as ledger:
            for index in range(0, 60, 5):
                ledger.append(honest_row(index, seed, alpha, noise))
        return tmp_path / name

    return make
