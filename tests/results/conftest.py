"""A small honest run to write, read and spoil."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.config import CertifyConfig
from smoothheads.noise import NOISES
from smoothheads.results.ledger import Ledger
from smoothheads.results.manifest import DataFacts, Manifest
from smoothheads.types import ABSTAIN, Certificate, Certified, Votes

AGGREGATIONS = ("ensemble", "head-1", "head-2")
CLASSES, SIGMA, ALPHA, N0, N = 4, 0.5, 0.001, 20, 1000


def votes_of(generator: np.random.Generator, label: int, share: float, n: int) -> Votes:
    p = np.full(CLASSES, (1 - share) / (CLASSES - 1))
    p[label] = share
    return Votes(AGGREGATIONS, generator.multinomial(n, p, size=len(AGGREGATIONS)))


def honest_row(index: int, seed: int = 0, alpha: float = ALPHA, noise: str = "grid") -> Certified:
    """CERTIFY on votes of a designed network: the share of right votes falls with the index."""
    generator = np.random.default_rng([seed, index])
    label = index % CLASSES
    share = max(0.2, 1 - 0.01 * index)
    selection, votes = votes_of(generator, label, share, N0), votes_of(generator, label, share, N)
    candidate = int(np.argmax(selection.for_aggregation()))
    k = int(votes.for_aggregation()[candidate])
    p_lower = clopper_pearson_lower(k, N, alpha)
    radius = NOISES.get(noise)().radius(p_lower, SIGMA)
    certificate = Certificate(candidate if radius > 0 else ABSTAIN, radius, p_lower, k, N, N0)
    return Certified(index, label, certificate, selection, votes, seconds=0.25 + index)


@pytest.fixture
def row() -> Callable[..., Certified]:
    return honest_row


@pytest.fixture
def manifest() -> Manifest:
    return Manifest(
        created="2026-01-01T00:00:00",
        certify=CertifyConfig(sigma=SIGMA, seed=0, alpha=ALPHA, n0=N0, n=N, noise="grid"),
        engine={"engine": "torch", "precision": "float32"},
        aggregations=AGGREGATIONS,
        classes=CLASSES,
        indices=tuple(range(0, 60, 5)),
        correction=0.0,
        weights="0" * 64,
        data=DataFacts(name="digits", fingerprint="1" * 64),
        versions={"torch": "2.13.0"},
    )


@pytest.fixture
def run(tmp_path: Path, manifest: Manifest) -> Callable[..., Path]:
    """A complete ledger folder."""

    def make(
        name: str = "run", seed: int = 0, alpha: float = ALPHA, noise: str = "grid", **changes: Any
    ) -> Path:
        certify = replace(manifest.certify, alpha=alpha, noise=noise)
        told = replace(manifest, certify=certify, **changes)
        with Ledger.open(tmp_path / name, told) as ledger:
            for index in range(0, 60, 5):
                ledger.append(honest_row(index, seed, alpha, noise))
        return tmp_path / name

    return make
