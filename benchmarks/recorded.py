"""Votes of a real network, recorded once and replayed through any budget without another forward pass.

Noise is keyed by (seed, image, phase, block), so what a sequential budget draws is a prefix of what the fixed
one draws: a replay gives the certificate that `Smoothed.certify_image` would give, bit for bit.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.algorithm import Terms
from smoothheads.certify.config import CertifyConfig
from smoothheads.config import from_dict, to_dict
from smoothheads.data import Dataset
from smoothheads.files import write_atomic, write_json
from smoothheads.noise import keyed_uniform
from smoothheads.smoothed import Smoothed
from smoothheads.types import Certificate, Counts, Phase, Pixels

N0 = 100
PILOT = 2_500  # the most that the radius budget draws before it decides
SETTINGS = "settings.json"

Blocks = NDArray[np.int16]  # votes per block and class [blocks, C]


@dataclass(frozen=True, slots=True)
class Recorded:
    """All votes that any budget can ask for on one image."""

    index: int
    label: int
    blocks: dict[Phase, Blocks]

    def reordered(self, rng: np.random.Generator) -> Self:
        """The same votes with the blocks of each phase in another order: blocks are independent and alike,
        so this is as good a run as the one that was recorded. The fixed budget gives the same certificate."""
        return replace(self, blocks={phase: rng.permutation(votes) for phase, votes in self.blocks.items()})


class Replay:
    """A Sampler over a recording. Every call goes on where its phase stopped."""

    def __init__(self, image: Recorded) -> None:
        self._sums = {
            phase: np.cumsum(np.vstack([np.zeros_like(votes[:1]), votes]), axis=0, dtype=np.int64)
            for phase, votes in image.blocks.items()
        }
        self._next = dict.fromkeys(self._sums, 0)
        self._block = int(image.blocks[Phase.ESTIMATION][0].sum())

    def __call__(self, phase: Phase, count: int) -> Counts:
        start, whole = self._next[phase], count // self._block
        stop = start + whole
        if whole * self._block != count or stop >= len(self._sums[phase]):
            raise ValueError(
                f"expected whole blocks of {self._block} that were recorded, got {count} {phase!r}"
            )
        self._next[phase] = stop
        fresh: Counts = self._sums[phase][stop] - self._sums[phase][start]
        return fresh


@dataclass(frozen=True, slots=True)
class Record:
    """A folder of recorded images and what they were recorded with."""

    config: CertifyConfig
    correction: float
    facts: dict[str, Any]
    images: tuple[Recorded, ...]

    @classmethod
    def read(cls, folder: Path) -> Self:
        facts = json.loads((folder / SETTINGS).read_text())
        images = tuple(_load(path) for path in sorted(folder.glob("*.npz")))
        return cls(from_dict(CertifyConfig, facts["certify"]), facts["correction"], facts, images)

    def certify(self, image: Recorded, **changes: Any) -> Certificate:
        """The certificate of this image with other settings of the budget."""
        config = self.config.changed(**changes)
        budget = config.budget
        terms = Terms(
            sigma=config.sigma,
            alpha=config.alpha,
            correction=self.correction,
            block=config.block,
            label=image.label if budget.uses_label else None,
            w=keyed_uniform(config.seed or 0, image.index),
        )
        return budget.certify(Replay(image), terms)


def start(folder: Path, smoothed: Smoothed, **facts: Any) -> None:
    """Says what is recorded in `folder`; a folder that holds something else is refused."""
    facts = {"certify": to_dict(smoothed.config), "correction": smoothed.correction, **facts}
    path = folder / SETTINGS
    if path.exists() and json.loads(path.read_text()) != json.loads(json.dumps(facts)):
        raise ValueError(f"expected a recording of the same run in {folder}, got another: use a new folder")
    write_json(path, facts)


def record(folder: Path, smoothed: Smoothed, dataset: Dataset) -> Iterator[Recorded]:
    """Records the images that `folder` does not hold yet; every finished one is safe on the disk."""
    for position, index in enumerate(dataset.indices.tolist()):
        path = folder / f"{index:06d}.npz"
        if path.exists():
            continue
        blocks = _votes(smoothed, dataset.image(position), index)
        image = Recorded(index, int(dataset.labels[position]), blocks)
        _save(path, image)
        yield image


def _votes(smoothed: Smoothed, image: Pixels, index: int) -> dict[Phase, Blocks]:
    config, engine = smoothed.config, smoothed.engine
    sizes = {Phase.SELECTION: N0, Phase.PILOT: PILOT, Phase.ESTIMATION: config.budget.max_samples or 0}
    if any(size % config.block for size in sizes.values()):
        raise ValueError(f"expected a block that divides {tuple(sizes.values())}, got {config.block}")
    return {
        phase: np.array(
            [
                engine.votes(image, index, phase, block, config.block).for_rule(config.rule)
                for block in range(size // config.block)
            ],
            dtype=np.int16,
        )
        for phase, size in sizes.items()
    }


def _save(path: Path, image: Recorded) -> None:
    buffer = io.BytesIO()
    arrays: dict[str, Any] = {phase.name: votes for phase, votes in image.blocks.items()}
    np.savez_compressed(buffer, index=image.index, label=image.label, **arrays)
    write_atomic(path, buffer.getvalue())


def _load(path: Path) -> Recorded:
    with np.load(path) as arrays:
        blocks = {Phase[name]: arrays[name] for name in arrays.files if name in Phase.__members__}
        return Recorded(int(arrays["index"]), int(arrays["label"]), blocks)
