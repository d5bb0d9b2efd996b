"""Records the votes of a network once, and replays them through any budget without another forward pass.

    python -m benchmarks.recorded runs/net --data-root DATA --out votes/net

The same command again continues where it stopped. Noise is keyed by (seed, image, phase, block), so what a
sequential budget draws is a prefix of what the fixed one draws: a replay gives the certificate that
`Smoothed.certify_image` would give, bit for bit.
"""

from __future__ import annotations

import io
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import tyro
from numpy.typing import NDArray

from smoothheads.certify.algorithm import CertifyParams
from smoothheads.certify.config import CertifyConfig
from smoothheads.config import from_dict, to_dict
from smoothheads.data import Dataset, SubsetConfig
from smoothheads.device import threads
from smoothheads.files import write_atomic, write_json
from smoothheads.provenance import versions
from smoothheads.runs.certify import certification_images
from smoothheads.runs.models import open_checkpoint
from smoothheads.smoothed import Smoothed
from smoothheads.types import Certificate, Counts, Phase, Pixels

N0 = 100
PILOT = 2_500  # the most that the radius budget draws before it decides
SETTINGS = "settings.json"

Blocks = NDArray[np.int16]  # votes per block and class [blocks, C]


@dataclass(frozen=True, slots=True)
class Recorded:
    """Holds all votes that any budget can ask for on one image."""

    index: int
    label: int
    blocks: dict[Phase, Blocks]

    def reordered(self, rng: np.random.Generator) -> Self:
        """Returns the same votes with the blocks of each phase in another order.

        Blocks are independent and identically distributed, so this is as good a run as the recorded one. The
        fixed budget gives the same certificate.
        """
        return replace(self, blocks={phase: rng.permutation(votes) for phase, votes in self.blocks.items()})


class Replay:
    """Samples from a recording; every call continues where its phase stopped."""

    def __init__(self, image: Recorded) -> None:
        self._sums = {
            phase: np.cumsum(np.vstack([np.zeros_like(votes[:1]), votes]), axis=0, dtype=np.int64)
            for phase, votes in image.blocks.items()
        }
        self._next = dict.fromkeys(self._sums, 0)
        self._block = int(image.blocks[Phase.ESTIMATION][0].sum())

    def __call__(self, phase: Phase, count: int) -> Counts:
        start, blocks = self._next[phase], count // self._block
        stop = start + blocks
        if blocks * self._block != count or stop >= len(self._sums[phase]):
            raise ValueError(
                f"Ask for whole blocks of {self._block} that were recorded, not {count} of {phase!r}."
            )
        self._next[phase] = stop
        fresh: Counts = self._sums[phase][stop] - self._sums[phase][start]
        return fresh


@dataclass(frozen=True, slots=True)
class Record:
    """Holds recorded images and the settings that they were recorded with."""

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
        """Returns the certificate of this image with other settings of the budget."""
        config = self.config.changed(**changes)
        budget = config.plan
        params = CertifyParams(
            sigma=config.sigma,
            alpha=config.alpha,
            correction=self.correction,
            block=config.block,
            label=image.label if budget.uses_label else None,
        )
        return budget.certify(Replay(image), params)


def start(folder: Path, smoothed: Smoothed, **facts: Any) -> None:
    """Writes what is recorded in `folder`; refuses a folder that holds another recording."""
    facts = {"certify": to_dict(smoothed.config), "correction": smoothed.certifier.correction, **facts}
    path = folder / SETTINGS
    if path.exists() and json.loads(path.read_text()) != json.loads(json.dumps(facts)):
        raise ValueError(f"{folder} holds a recording of another run: use a new folder.")
    write_json(path, facts)


def record(folder: Path, smoothed: Smoothed, dataset: Dataset) -> Iterator[Recorded]:
    """Records the images that `folder` does not hold yet; every finished one is on the disk at once."""
    for position, index in enumerate(dataset.indices.tolist()):
        path = folder / f"{index:06d}.npz"
        if path.exists():
            continue
        blocks = _votes(smoothed, dataset.image(position), index)
        image = Recorded(index, int(dataset.labels[position]), blocks)
        _save(path, image)
        yield image


def _votes(smoothed: Smoothed, image: Pixels, index: int) -> dict[Phase, Blocks]:
    config, counter = smoothed.config, smoothed.certifier.counter
    sizes = {Phase.SELECTION: N0, Phase.PILOT: PILOT, Phase.ESTIMATION: config.plan.max_samples or 0}
    if any(size % config.block for size in sizes.values()):
        raise ValueError(f"The block must divide {tuple(sizes.values())}; it is {config.block}.")
    return {
        phase: np.array(
            [
                counter.votes(image, index, phase, block, config.block).for_aggregation(config.aggregation)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    run: Annotated[Path, tyro.conf.Positional]
    """Folder of a training run or checkpoint."""
    out: Path
    data_root: str | None = None
    """Where the data lies (default: where training found it)."""
    every: int = 50
    first: int = 200
    n: int = 100_000
    block: int = 100
    seed: int = 0
    check: int = 2
    """Number of images that Smoothed.certify_image certifies again; it must give the same certificate."""


def main(settings: Settings) -> None:
    checkpoint = open_checkpoint(settings.run)
    dataset = certification_images(
        checkpoint, SubsetConfig(every=settings.every, first=settings.first), root=settings.data_root
    )
    config = CertifyConfig(
        sigma=checkpoint.config.train.sigma, n=settings.n, block=settings.block, seed=settings.seed
    )
    with threads(1):
        smoothed = Smoothed(checkpoint.model, checkpoint.info, config)
        facts = {"weights": checkpoint.weights_hash, "data": dataset.fingerprint, "versions": versions()}
        start(settings.out, smoothed, engine=smoothed.engine.describe(), **facts)
        since = time.monotonic()
        for done, image in enumerate(record(settings.out, smoothed, dataset), 1):
            print(f"{done} images, {(time.monotonic() - since) / done:.1f} s each", flush=True)
            if done <= settings.check:
                compare(settings.out, smoothed, dataset, image)


def compare(out: Path, smoothed: Smoothed, dataset: Dataset, image: Recorded) -> None:
    """Raises AssertionError unless the recording gives the certificate of the network itself."""
    position = dataset.indices.tolist().index(image.index)
    certificate = smoothed.certify_image(dataset.image(position), image.index, label=image.label).certificate
    replayed = Record.read(out).certify(image)
    if replayed != certificate:
        raise AssertionError(f"The recording gives {replayed}, the network {certificate}.")
    print(f"image {image.index}: the recording gives the certificate of certify_image, {certificate}")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
