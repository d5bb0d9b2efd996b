"""Before anything starts: all that can be refused is refused, and the time is estimated by a few trials."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from smoothheads.certify.config import CertifyConfig
from smoothheads.config import digest, to_dict
from smoothheads.data import DataConfig, describe
from smoothheads.device import threads
from smoothheads.errors import DataError
from smoothheads.models import ModelConfig
from smoothheads.runs.train import train_run
from smoothheads.smoothed import Smoothed
from smoothheads.studies import stages
from smoothheads.studies.plan import Joining, StudyPlan, Training, make_plan
from smoothheads.studies.spec import Study
from smoothheads.studies.store import StudyStore
from smoothheads.training import RunConfig

START_SECONDS = 1.0
"""Reading data and weights."""


def prepare(study: Study) -> tuple[StudyPlan, int]:
    """The plan and how many images are certified; raises where data are missing, or differ between arms."""
    found = {}
    for data, name in _data(study).items():
        stages.require_unseen(data, study.images)
        images = stages.certified_images(data, study.images)
        found[images.fingerprint] = name, images
    if len(found) > 1:
        (first, _), (second, _) = list(found.values())[:2]
        raise DataError(
            f"the same certified images for all arms, as of {first}",
            f"others for {second}",
            "give all one data set",
        )
    ((fingerprint, (_, images)),) = found.items()
    return make_plan(study, stages.training_fingerprint, fingerprint), len(images)


def _data(study: Study) -> dict[DataConfig, str]:
    """Every data set of the study, and which arm has it."""
    return {
        study.run_config(arm, setting, study.sigmas[0], study.seeds[0]).data: (
            f"arm {arm.name}" + (f" in {setting}" if setting else "")
        )
        for arm in study.arms
        for setting in study.settings
    }


@threads(1)
def estimate(plan: StudyPlan, store: StudyStore, images: int) -> dict[str, float]:
    """Seconds of one thread for every item that is not there yet, by key; each kind of network is tried
    once, with one thread as the study will have: several on a busy machine wait for each other."""
    epochs: dict[str, float] = {}
    samples: dict[str, float] = {}
    seconds = {}
    for item in plan.items:
        if store.facts(item) is not None:
            seconds[item.key] = 0.0
        elif isinstance(item, Training):
            config = item.config
            parts = config.data, config.model, config.objective.method
            kind = digest([*map(to_dict, parts), config.train.batch])
            if kind not in epochs:
                epochs[kind] = training_seconds(config) / config.train.epochs
            seconds[item.key] = START_SECONDS + config.train.epochs * epochs[kind]
        elif isinstance(item, Joining):
            seconds[item.key] = START_SECONDS
        else:
            model, data = item.network.model, item.network.data
            kind = digest([*map(to_dict, (model, data, item.config.engine)), item.config.aggregation])
            if kind not in samples:
                samples[kind] = seconds_per_sample(model, data, item.config)
            count = images * item.config.budget.typical_samples
            seconds[item.key] = START_SECONDS + count * samples[kind]
    return seconds


class _EnoughError(Exception):
    """Ends a training that was only a trial."""


def training_seconds(config: RunConfig) -> float:
    """How long a training takes here, by a few steps of it."""
    ends: list[float] = []
    steps: list[int] = []

    def stop(event: Any) -> None:
        ends.append(time.perf_counter())
        steps.append(getattr(event, "steps", 0))
        if len(ends) > 3:
            raise _EnoughError

    with TemporaryDirectory() as folder, suppress(_EnoughError):
        trial = replace(config, init=None)
        train_run(trial, Path(folder) / "trial", on_event=stop, read=stages.read_once)
    fastest = min(end - begin for begin, end in pairwise(ends)) if len(ends) > 1 else 0.0
    return fastest * max(steps)


def seconds_per_sample(model: ModelConfig, data: DataConfig, config: CertifyConfig) -> float:
    """How long a vote takes, by two passes of the engine with fresh weights. Raises what the engine raises
    where it is not installed, or does not take the network."""
    network = stages.untrained(model, data)
    return Smoothed(network.eval(), describe(data), config).seconds_per_sample()
