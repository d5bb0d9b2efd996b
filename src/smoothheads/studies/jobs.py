"""One job of a study makes one item: it trains a network, joins networks, or certifies one on unseen images.

A job is the item and the store, so that any executor on any machine that sees the store can run it. An item
that was interrupted goes on from what is on the disk.
"""

from __future__ import annotations

import itertools
import re
import traceback
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from smoothheads.checkpoint import MANIFEST, WEIGHTS
from smoothheads.config import load_json, to_dict
from smoothheads.data import DataConfig, Dataset, Split, SubsetConfig, describe, load, read_split, select
from smoothheads.errors import ConfigError, DataError, HeldError, SmoothheadsError
from smoothheads.files import write_json
from smoothheads.models import ModelConfig, build
from smoothheads.models.cost import cost, parts
from smoothheads.models.multihead import MultiHead
from smoothheads.provenance import processor
from smoothheads.runs.certify import certify_run
from smoothheads.runs.ensemble import ensemble_run
from smoothheads.runs.models import CONFIG, open_checkpoint
from smoothheads.runs.train import train_run
from smoothheads.studies.plan import Certification, Item, Joining, StudyPlan, make_plan
from smoothheads.studies.results import NetworkSize
from smoothheads.studies.spec import Images, Study
from smoothheads.studies.store import LOG, StudyStore, training_facts
from smoothheads.training import RunConfig

STOP_SECONDS = 60.0
"""How long a training may take to save its state when a study is stopped."""
ELSEWHERE = "another process is making it"
"""`perform` returns this for an item that another study on the same store has begun, which is no failure."""
_STATUS, _RESET_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True, slots=True)
class StudyJob:
    """An item to make in a store."""

    item: Item
    store: StudyStore

    @property
    def key(self) -> str:
        return self.item.key


def perform(job: StudyJob) -> str | None:
    """Makes the item unless it is finished; returns ELSEWHERE or the message of a failure, which is noted."""
    item, store = job.item, job.store
    folder = store.folder(item)
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with (
            store.lock(item),
            (folder / LOG).open("a") as log,
            redirect_stdout(log),
            redirect_stderr(log),
        ):
            if store.facts(item) is not None:
                return None
            with suppress(OSError):
                _RESET_PEAK.write_text("5")  # from here on the system notes the largest memory anew
            try:
                facts = _make(item, store)
            except HeldError:  # somebody trains or certifies into its folder without a study
                raise
            except Exception as error:  # also of a user's own component: one arm fails, not the study
                traceback.print_exc()
                known = isinstance(error, SmoothheadsError)
                message = str(error) if known else f"{type(error).__name__}: {error}"
                store.fail(item, message)
                return message
            facts |= {"seconds": store.progress(item)[1], "peak_mib": _peak_mib()}
            store.finish(item, facts | {"processor": processor()})
            return None
    except HeldError:
        return ELSEWHERE


def _make(item: Item, store: StudyStore) -> dict[str, Any]:
    """Makes an item and returns what is noted of it."""
    out = store.artefact(item)
    if isinstance(item, Certification):
        data = item.network.data
        certify_run(
            open_checkpoint(store.checkpoint(item.network)),
            certified_images(data, item.images),
            item.config,
            out,
            training=lambda: _training_set(data),
        )
        return {}
    if isinstance(item, Joining):
        checkpoint = ensemble_run([store.checkpoint(member) for member in item.members], out)
        facts = {}
    else:
        start = None if item.start is None else str(store.checkpoint(item.start))
        checkpoint = _train(replace(item.config, init=start), out)
        facts = training_facts(out)
    return facts | {"weights": str(load_json(checkpoint / MANIFEST)["sha256"][WEIGHTS])}


def _train(config: RunConfig, out: Path) -> Path:
    """Trains, or continues. The folder is named by what the network is made from, so only the places of the
    data and of the network that it starts from may have changed since it began."""
    path = out / CONFIG
    # Write the new places where the run keeps its settings, which it compares with those it is given.
    if path.is_file():
        before, now = load_json(path), to_dict(config)
        moved = before | {"init": now["init"], "data": before["data"] | {"root": now["data"]["root"]}}
        if moved != before:
            write_json(path, moved)
    return train_run(config, out, resume=True, read=read_once)


# Images and networks


def plan_study(study: Study) -> StudyPlan:
    """Plans a study on its data; raises DataError where data are missing or differ between arms, and where an
    arm trains on images that are certified."""
    # The images to certify, by fingerprint, with the first arm that has them.
    found: dict[str, tuple[str, Dataset]] = {}
    for arm, setting in itertools.product(study.arms, study.settings):
        data = study.run_config(arm, setting, study.sigmas[0], study.seeds[0]).data
        images = certified_images(data, study.images)
        if study.images.split == "train":
            seen = np.intersect1d(_training_set(data).indices, images.indices)
            if len(seen):
                raise DataError(
                    f"{len(seen)} of the images to certify are trained on; raise images.offset, or lower "
                    "data.subset."
                )
        found.setdefault(images.fingerprint, (f"{arm.name} in {setting}" if setting else arm.name, images))
    if len(found) > 1:
        (first, _), (second, _) = list(found.values())[:2]
        raise DataError(
            f"The arms {first} and {second} have different images to certify; give all the same data set."
        )
    ((fingerprint, (_, images)),) = found.items()
    return make_plan(study, lambda data: _training_set(data).fingerprint, fingerprint, len(images))


def certified_images(data: DataConfig, images: Images) -> Dataset:
    """Returns the images that a study certifies, of the data set that a run was trained on."""
    full = read_once(data, images.split)
    # Every k-th image from the offset on, at most so many.
    chosen = range(images.offset, len(full), images.every)[: images.first]
    if not chosen:
        raise ConfigError(
            f"images.offset is {images.offset}, but the {images.split} split has {len(full)} images."
        )
    return select(full, SubsetConfig(indices=tuple(chosen)))


def read_once(data: DataConfig, split: Split) -> Dataset:
    """Reads a full split, which jobs of one process share: decoding takes as long as a small training."""
    return _full(replace(data, subset=SubsetConfig(), validation=0.0, augment="none"), split)


_full = lru_cache(maxsize=2)(read_split)


@lru_cache(maxsize=64)
def _training_set(data: DataConfig) -> Dataset:
    return load(data, read_once).train


def training_images(data: DataConfig) -> int:
    """Returns the number of images that a run trains on."""
    return len(_training_set(data))


def untrained(model: ModelConfig, data: DataConfig) -> MultiHead:
    """Returns a network with fresh weights for the images of a data set."""
    info = describe(data)
    return build(model, shape=info.shape, classes=info.classes, mean=info.mean, std=info.std, seed=0)


@lru_cache(maxsize=64)
def network_size(model: ModelConfig, data: DataConfig) -> NetworkSize:
    """Returns the size of a network for the images of a data set."""
    network = untrained(model, data)
    counted = cost(network, describe(data).shape)
    return NetworkSize(
        params=counted.params,
        gmacs=counted.macs / 1e9,
        gmacs_paper=counted.macs_paper / 1e9,
        head_fraction=parts(network).head_share_of_layers if model.heads > 1 else 0.0,
    )


def _peak_mib() -> float | None:
    """Returns the largest memory since `_RESET_PEAK` was written; None where the system does not tell."""
    with suppress(OSError):
        if found := re.search(r"VmHWM:\s+(\d+) kB", _STATUS.read_text()):
            return int(found[1]) / 2**10
    return None
