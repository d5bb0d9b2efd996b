"""What a study does with one network: counts it, trains it, certifies it on images it was not trained on."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from smoothheads.certify.config import CertifyConfig
from smoothheads.config import load_json, to_dict
from smoothheads.data import DataConfig, Dataset, Split, SubsetConfig, describe, load, read_split, select
from smoothheads.errors import ConfigError, DataError
from smoothheads.files import write_json
from smoothheads.models import ModelConfig, build
from smoothheads.models.cost import cost, parts
from smoothheads.models.multihead import MultiHead
from smoothheads.runs.certify import certify_run
from smoothheads.runs.models import CONFIG, open_checkpoint
from smoothheads.runs.train import train_run
from smoothheads.studies.spec import Images
from smoothheads.training import RunConfig


def untrained(model: ModelConfig, data: DataConfig) -> MultiHead:
    info = describe(data)
    return build(model, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=0)


@lru_cache(maxsize=64)
def size(model: ModelConfig, data: DataConfig) -> dict[str, float]:
    """Parameters; billions of multiply-accumulates for one image, plainly and as the paper counts them; the
    share of the layers that one head has, 0 in a single network."""
    network = untrained(model, data)
    counted = cost(network, describe(data).shape)
    return {
        "params": counted.params,
        "gmacs": counted.macs / 1e9,
        "gmacs_paper": counted.macs_paper / 1e9,
        "head_share": parts(network).head_share_of_layers if model.heads > 1 else 0.0,
    }


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
