"""What a study does with one network: trains and certifies it, and reads how far that is, and the result."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.config import CertifyConfig
from smoothheads.checkpoint.folder import MANIFEST, WEIGHTS
from smoothheads.config import load_json, to_dict
from smoothheads.data import DataConfig, Dataset, SubsetConfig, load, select
from smoothheads.data.base import Split
from smoothheads.data.splits import read_split
from smoothheads.errors import ConfigError, DataError
from smoothheads.files import write_json
from smoothheads.results import read_log
from smoothheads.results.manifest import FILE, read_manifest
from smoothheads.results.recertify import recertified
from smoothheads.runs.certify import certify_run
from smoothheads.runs.layout import CONFIG, METRICS, open_checkpoint
from smoothheads.runs.train import train_run
from smoothheads.studies.spec import Images
from smoothheads.training import RunConfig
from smoothheads.types import ENSEMBLE, format_radius

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_LEDGER = "ledger.tsv"


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A certified network, image by image; `noisy` is the share of samples classified as the label."""

    index: Ints
    label: Ints
    prediction: Ints
    radius: Floats
    noisy: Floats
    samples: Ints
    seconds: Floats

    @property
    def certified_radius(self) -> Floats:
        """The radius where the answer is right, 0 elsewhere; its mean is the ACR."""
        return np.where(self.prediction == self.label, self.radius, 0.0)


def train(config: RunConfig, start: Path | None, out: Path) -> Path:
    """Trains, or goes on with it. Its folder is named by what it is made from, so only the places of the data
    and of the network that it starts from may have been others when it began."""
    config = replace(config, init=None if start is None else str(start))
    path = out / CONFIG
    if path.is_file():
        told, now = load_json(path), to_dict(config)
        here = told | {"init": now["init"], "data": told["data"] | {"root": now["data"]["root"]}}
        if here != told:
            write_json(path, here)
    return train_run(config, out, resume=True, read=read_once)


def certify(network: Path, data: DataConfig, images: Images, config: CertifyConfig, out: Path) -> Path:
    """Certifies, or goes on with it."""
    chosen = certified_images(data, images)
    return certify_run(open_checkpoint(network), chosen, config, out, training=lambda: _trained_on(data))


def certified_images(data: DataConfig, images: Images) -> Dataset:
    """The images that a study certifies, of the data set that a run was trained on."""
    whole = read_once(data, images.split)
    chosen = range(images.offset, len(whole), images.every)[: images.first]
    if not chosen:
        raise ConfigError(
            f"an offset below {len(whole)}, the number of images", str(images.offset), "lower it"
        )
    return select(whole, SubsetConfig(indices=tuple(chosen)))


def read_once(data: DataConfig, split: Split) -> Dataset:
    """A whole split; jobs of one process share what was decoded, which takes as long as a small training."""
    return _whole(replace(data, subset=SubsetConfig(), validation=0.0, augment="none"), split)


_whole = lru_cache(maxsize=2)(read_split)


@lru_cache(maxsize=64)
def _trained_on(data: DataConfig) -> Dataset:
    return load(data, read_once).train


def training_fingerprint(data: DataConfig) -> str:
    return _trained_on(data).fingerprint


def require_unseen(data: DataConfig, images: Images) -> None:
    """Refuses to certify images that are trained on."""
    if images.split == "test":
        return
    seen = np.intersect1d(_trained_on(data).indices, certified_images(data, images).indices)
    if len(seen):
        raise DataError(
            "images that no arm trains on",
            f"{len(seen)} that one does",
            "raise images.offset, or lower data.subset",
        )


def read(ledger: Path, rule: str = ENSEMBLE) -> Measured:
    """A ledger, or a log of others; by another rule from the same votes."""
    log = read_log(ledger)
    log = log if rule == log.rule else recertified(log, rule=rule)
    noisy, samples = log.label_probability(), log.samples
    unknown = np.full(len(log), np.nan)
    return Measured(
        index=log.index,
        label=log.label,
        prediction=log.prediction,
        radius=np.array([float(format_radius(radius)) for radius in log.radius]),
        noisy=unknown if noisy is None else np.round(noisy, 6),
        samples=np.zeros(len(log), np.int64) if samples is None else samples,
        seconds=np.round(log.seconds, 6),
    )


def fit(run: Path) -> dict[str, Any]:
    """How well the training set was fitted: the last epoch's metrics, and the seconds of an epoch."""
    path = run / METRICS
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    if not lines:
        return {}
    last = lines[-1]
    facts = {
        "loss": float(np.mean(last["head_loss"])),
        "epoch_seconds": float(np.median([x["seconds"] for x in lines])),
    }
    if "easy_fraction" in last:
        facts["easy"] = float(np.mean(last["easy_fraction"]))
    return facts


def weights_hash(network: Path) -> str:
    return str(load_json(network / MANIFEST)["sha256"][WEIGHTS])


def rows_written(ledger: Path) -> int:
    """How many images are in a ledger that may still be growing."""
    path = ledger / _LEDGER
    return max(0, path.read_bytes().count(b"\n") - 1) if path.is_file() else 0


def rows_expected(ledger: Path) -> int:
    return len(read_manifest(ledger).expected or ()) if (ledger / FILE).is_file() else 0


def epochs_written(run: Path) -> int:
    path = run / METRICS
    return path.read_bytes().count(b"\n") if path.is_file() else 0
