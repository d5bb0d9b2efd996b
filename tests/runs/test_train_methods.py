"""Every method trains through a run in a folder; those with a memory of their own resume bit for bit."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch

from smoothheads.data import SubsetConfig, named
from smoothheads.errors import ConfigError
from smoothheads.models import ModelConfig
from smoothheads.objectives import (
    AcrTargeted,
    CatRs,
    Consistency,
    Drt,
    Gaussian,
    Macer,
    Method,
    ObjectiveConfig,
    SmoothAdv,
    SmoothMix,
    Stability,
    TeachingConfig,
)
from smoothheads.runs.train import train_run
from smoothheads.training import RunConfig, TrainConfig
from smoothheads.training.loop import EpochDone, StepDone

CONFIG = RunConfig(
    data=named("digits", subset=SubsetConfig(first=48), validation=0.2),
    model=ModelConfig(arch="resnet8", heads=2),
    train=TrainConfig(epochs=2, batch=10, batch_unit="images", sigma=0.25),
)
METHODS: tuple[Method, ...] = (
    Gaussian(draws=2),
    Stability(),
    Consistency(),
    SmoothMix(steps=2, mix_step=1),
    SmoothAdv(draws=2, steps=2),
    SmoothAdv(draws=2, steps=2, attack="ddn"),
    Macer(draws=4),
    CatRs(draws=2, steps=2, teacher_draws=20),
    AcrTargeted(draws=2, start=1, keep=0.0, keep_draws=10, every=1, weigh_draws=14, steps=2),
    Drt(),
)


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Gaussian network, as CAT-RS wants it; it may have another number of heads."""
    config = replace(CONFIG, model=ModelConfig(arch="resnet8"), train=replace(CONFIG.train, epochs=1))
    return str(train_run(config, tmp_path_factory.mktemp("teacher")))


def with_method(method: Method, teacher: str, **changes: Any) -> RunConfig:
    if isinstance(method, CatRs):
        method = replace(method, teacher=teacher)
    return replace(CONFIG, objective=ObjectiveConfig(method=method, **changes))


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


@pytest.mark.parametrize(
    "method", METHODS, ids=[f"{m.name} {getattr(m, 'attack', '')}".strip() for m in METHODS]
)
def test_every_method_trains(method: Method, teacher: str, tmp_path: Path) -> None:
    folder = train_run(with_method(method, teacher), tmp_path)
    first, last = metrics(tmp_path)
    assert math.isfinite(last["loss"])
    assert last["lambda"] != first["lambda"]
    assert all(0 < weight <= 1 for weight in last["mean_weight"])
    assert 0 <= last["validation"]["accuracy"] <= 1
    assert (folder / "model.safetensors").is_file()


REMEMBERING: dict[str, tuple[Method, TeachingConfig]] = {
    "cat-rs": (METHODS[7], TeachingConfig()),
    "acr-targeted": (METHODS[8], TeachingConfig()),
    "quantile": (Gaussian(draws=2), TeachingConfig(pace="quantile", window=16)),
    "class-quantile": (Gaussian(draws=2), TeachingConfig(pace="class-quantile", class_window=16)),
    "own-accuracy": (Gaussian(draws=2), TeachingConfig(pace="own-accuracy")),
    "superloss": (Gaussian(draws=2), TeachingConfig(weights="superloss")),
}


@pytest.mark.parametrize("name", REMEMBERING)
@pytest.mark.parametrize("stop", [5, 7])
def test_interrupted_and_resumed_is_bit_identical(name: str, stop: int, teacher: str, tmp_path: Path) -> None:
    """Four steps and the end of an epoch, twice: event 5 ends the first epoch, 7 is inside the second."""
    method, teaching = REMEMBERING[name]
    config = with_method(method, teacher, teaching=teaching)
    whole = train_run(config, tmp_path / "whole")
    seen = 0

    def interrupt(_: StepDone | EpochDone) -> None:
        nonlocal seen
        seen += 1
        if seen == stop:
            raise KeyboardInterrupt

    out = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        train_run(config, out, on_event=interrupt, save_seconds=0)
    resumed = train_run(config, out, resume=True)
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert metrics(out) == metrics(tmp_path / "whole")


def test_soft_labels_are_the_teachers_votes_and_made_once(teacher: str, tmp_path: Path) -> None:
    train_run(with_method(METHODS[7], teacher), tmp_path)
    path = tmp_path / "prepared.safetensors"
    soft = safetensors.torch.load_file(path)["prepared"]
    assert soft.shape == (38, 10)  # 48 images, of which 10 are held out
    assert soft.sum(1).tolist() == pytest.approx([1.0] * 38)
    assert ((20 * soft).round() - 20 * soft).abs().max() < 1e-5  # 20 votes each
    made = path.stat().st_mtime_ns
    train_run(with_method(METHODS[7], teacher), tmp_path, resume=True)
    assert path.stat().st_mtime_ns == made


def test_cat_rs_without_a_teacher_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cat-rs needs a teacher"):
        train_run(replace(CONFIG, objective=ObjectiveConfig(method=CatRs())), tmp_path)


def test_the_curriculum_repeats_easy_images(teacher: str, tmp_path: Path) -> None:
    """From the epoch after `start` on, the loss is over other images: runs are equal before, not after."""
    plain = with_method(Gaussian(draws=2), teacher)
    train_run(plain, tmp_path / "plain")
    train_run(with_method(METHODS[8], teacher), tmp_path / "targeted")
    before, after = zip(metrics(tmp_path / "plain"), metrics(tmp_path / "targeted"), strict=True)
    assert before[0]["loss"] == before[1]["loss"]
    assert after[0]["loss"] != after[1]["loss"]
