"""Records the votes of a checkpoint on test images for `benchmarks.budgets`; run it again and it goes on.

python -m benchmarks.record_votes runs/net --data-root DATA --out votes/net
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro
from benchmarks.recorded import Record, Recorded, record, start

from smoothheads.certify.config import CertifyConfig
from smoothheads.data import Dataset, SubsetConfig
from smoothheads.device import threads
from smoothheads.provenance import versions
from smoothheads.runs.certify import certification_images
from smoothheads.runs.layout import open_checkpoint
from smoothheads.smoothed import Smoothed


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
    """This many images are certified again by Smoothed.certify_image, which must give the same."""


def main(settings: Settings) -> None:
    checkpoint = open_checkpoint(settings.run)
    data = replace(checkpoint.config.data, root=settings.data_root or checkpoint.config.data.root)
    dataset = certification_images(checkpoint, data, SubsetConfig(every=settings.every, first=settings.first))
    config = CertifyConfig.of(
        checkpoint.config.train.sigma, n=settings.n, block=settings.block, seed=settings.seed
    )
    with threads(1):
        smoothed = Smoothed(checkpoint.model, checkpoint.info, config)
        facts = {"weights": checkpoint.weights_hash, "data": dataset.fingerprint, "versions": versions()}
        start(settings.out, smoothed, engine=smoothed.engine.describe(), **facts)
        since = time.monotonic()
        for done, image in enumerate(record(settings.out, smoothed, dataset), 1):
            print(f"{done} images, {(time.monotonic() - since) / done:.1f} s each", flush=True)
            if done <= settings.check:
                check(settings.out, smoothed, dataset, image)


def check(out: Path, smoothed: Smoothed, dataset: Dataset, image: Recorded) -> None:
    position = dataset.indices.tolist().index(image.index)
    certificate = smoothed.certify_image(dataset.image(position), image.index, label=image.label).certificate
    replayed = Record.read(out).certify(image)
    if replayed != certificate:
        raise AssertionError(f"expected {certificate}, got {replayed} from the recording")
    print(f"image {image.index}: the recording gives the certificate of certify_image, {certificate}")


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
