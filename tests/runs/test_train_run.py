from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from smoothheads import checkpoint
from smoothheads.data import SubsetConfig, named
from smoothheads.errors import CheckpointError, ConfigError, DataError, SmoothheadsError
from smoothheads.models import ModelConfig
from smoothheads.objectives import CatRs, Gaussian, ObjectiveConfig
from smoothheads.runs.certify import network_facts
from smoothheads.runs.train import train_run
from smoothheads.training import RunConfig, TrainConfig
from smoothheads.training.loop import EpochDone, StepDone

CONFIG = RunConfig(
    data=named("digits", subset=SubsetConfig(first=80)),
    model=ModelConfig(arch="resnet8", heads=2),
    objective=ObjectiveConfig(method=Gaussian(draws=2)),
    train=TrainConfig(epochs=3, batch=32, sigma=0.3),
)


def metrics(out: Path) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]


def test_a_run_leaves_config_metrics_and_checkpoint(tmp_path: Path) -> None:
    folder = train_run(CONFIG, tmp_path / "run")
    assert sorted(p.name for p in (tmp_path / "run").iterdir() if not p.name.startswith(".")) == [
        "checkpoint",
        "config.json",
        "metrics.jsonl",
    ]
    ready = checkpoint.load(folder)
    assert ready.config.train.precision in ("float32", "bfloat16")  # what `auto` meant is recorded
    assert [line["epoch"] for line in metrics(tmp_path / "run")] == [1, 2, 3]
    assert ready.manifest["metrics"]["epoch"] == 3


@pytest.mark.parametrize("stop", [2, 6, 11])
def test_interrupted_and_resumed_is_bit_identical(tmp_path: Path, stop: int) -> None:
    whole = train_run(CONFIG, tmp_path / "whole")
    seen = 0

    def interrupt(_: StepDone | EpochDone) -> None:
        nonlocal seen
        seen += 1
        if seen == stop:
            raise KeyboardInterrupt

    out = tmp_path / "broken"
    with pytest.raises(KeyboardInterrupt):
        train_run(CONFIG, out, on_event=interrupt, save_seconds=0)
    assert not (out / "checkpoint").exists()
    resumed = train_run(CONFIG, out, resume=True)
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    assert metrics(out) == metrics(tmp_path / "whole")
    assert not (out / "state.safetensors").exists()


def test_the_manifest_tells_the_time_of_training_over_all_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on a second each time that it is read."""
    now = 0.0

    def tick() -> float:
        nonlocal now
        now += 1.0
        return now

    monkeypatch.setattr("smoothheads.runs.train.time", SimpleNamespace(monotonic=tick))
    whole = checkpoint.load(train_run(CONFIG, tmp_path / "whole", save_seconds=0)).manifest["seconds"]
    assert whole > 12  # a second at least for every step

    def interrupt(event: StepDone | EpochDone) -> None:
        if isinstance(event, StepDone) and event.step == 8:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(CONFIG, tmp_path / "broken", on_event=interrupt, save_seconds=0)
    now += 1000.0  # nobody trains between the two
    resumed = checkpoint.load(train_run(CONFIG, tmp_path / "broken", resume=True, save_seconds=0))
    assert whole - 4 <= resumed.manifest["seconds"] <= whole + 4
    assert network_facts(resumed)["seconds"] == resumed.manifest["seconds"]


def test_a_folder_with_a_run_is_not_overwritten(tmp_path: Path) -> None:
    train_run(CONFIG, tmp_path)
    with pytest.raises(CheckpointError, match="holds a run already: add --resume"):
        train_run(CONFIG, tmp_path)
    assert train_run(CONFIG, tmp_path, resume=True) == tmp_path / "checkpoint"  # nothing left to do


def test_resume_with_other_settings_is_refused_and_says_which(tmp_path: Path) -> None:
    train_run(CONFIG, tmp_path)
    changed = replace(CONFIG, train=replace(CONFIG.train, lr=0.2))
    with pytest.raises(CheckpointError, match=r"train\.lr = 0\.2 instead of 0\.1\. Resume with the original"):
        train_run(changed, tmp_path, resume=True)


def test_resume_with_changed_images_is_refused(tmp_path: Path) -> None:
    """The settings are the same, the files are not: one pixel is enough."""
    images, labels = np.zeros((40, 8, 8), np.uint8), np.arange(40) % 2
    images[::2, 2:6] = 200

    def write(images: NDArray[np.uint8]) -> None:
        np.savez(
            tmp_path / "x.npz",
            train_images=images,
            train_labels=labels,
            test_images=images,
            test_labels=labels,
        )

    def interrupt(event: StepDone | EpochDone) -> None:
        if isinstance(event, StepDone) and event.step == 2:
            raise KeyboardInterrupt

    config = replace(CONFIG, data=named("npz", root=str(tmp_path / "x.npz")))
    write(images)
    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "run", on_event=interrupt, save_seconds=0)
    changed = images.copy()
    changed[3, 0, 0] = 1
    write(changed)
    with pytest.raises(CheckpointError, match="training images are not those that the run"):
        train_run(config, tmp_path / "run", resume=True)
    write(images)
    assert train_run(config, tmp_path / "run", resume=True).is_dir()


def test_tensorboard_events_are_written_when_asked(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    train_run(replace(CONFIG, train=replace(CONFIG.train, epochs=1)), tmp_path, tensorboard=True)
    assert list((tmp_path / "tensorboard").glob("events.*"))


def one_epoch(**changes: Any) -> RunConfig:
    return replace(CONFIG, train=replace(CONFIG.train, epochs=1), **changes)


def test_training_starts_from_a_checkpoint(tmp_path: Path) -> None:
    first = train_run(one_epoch(), tmp_path / "first")
    still = replace(CONFIG.train, epochs=1, lr=1e-30, weight_decay=0.0)
    tuned = checkpoint.load(
        train_run(replace(CONFIG, train=still, init=str(tmp_path / "first")), tmp_path / "tuned")
    )
    start = checkpoint.load(first)
    for (name, a), b in zip(start.model.named_parameters(), tuned.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-20, msg=name)
    assert tuned.manifest["init_sha256"] == start.weights_hash
    assert tuned.weights_hash != start.weights_hash  # BatchNorm has seen more images


def test_a_run_from_a_checkpoint_resumes_to_the_same_bits(tmp_path: Path) -> None:
    train_run(one_epoch(), tmp_path / "first")
    config = replace(CONFIG, init=str(tmp_path / "first"))
    whole = train_run(config, tmp_path / "whole")

    def interrupt(event: StepDone | EpochDone) -> None:
        if isinstance(event, StepDone) and event.step == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(config, tmp_path / "broken", on_event=interrupt, save_seconds=0)
    resumed = train_run(config, tmp_path / "broken", resume=True)
    assert (resumed / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()


def test_other_initial_weights_are_refused(tmp_path: Path) -> None:
    first = str(train_run(one_epoch(), tmp_path / "first"))
    seed_2 = replace(CONFIG.train, epochs=1, seed=2)
    second = str(train_run(replace(CONFIG, train=seed_2), tmp_path / "second"))
    out = tmp_path / "run"
    train_run(one_epoch(init=first), out)
    with pytest.raises(CheckpointError, match=r"started with: init = .* instead of .*"):
        train_run(one_epoch(init=second), out, resume=True)
    shutil.rmtree(first)
    shutil.copytree(second, first)  # the same path, other weights
    with pytest.raises(CheckpointError, match="initial weights are not those that the run"):
        train_run(one_epoch(init=first), out, resume=True)


def test_weights_of_another_network_or_data_set_are_refused(tmp_path: Path) -> None:
    first = str(train_run(one_epoch(), tmp_path / "first"))
    for model, message in (
        (ModelConfig(arch="resnet8", heads=3), "heads = 3 instead of 2"),
        (
            ModelConfig(arch="resnet14", heads=2, cut="input"),
            'arch = "resnet14" instead of "resnet8"; cut = "input"',
        ),
    ):
        with pytest.raises(CheckpointError, match=message):
            train_run(one_epoch(model=model, init=first), tmp_path / "run")
        assert not (tmp_path / "run").exists()
    half = replace(CONFIG.data, downscale=2)
    with pytest.raises(DataError, match=r"first.* saw images of shape \(1, 8, 8\), not \(1, 4, 4\)"):
        train_run(one_epoch(data=half, init=first), tmp_path / "run")


WRONG: list[tuple[dict[str, Any], type[SmoothheadsError]]] = [
    ({"model": ModelConfig(arch="resnet9")}, ConfigError),
    ({"model": ModelConfig(arch="resnet8", cut="stage9")}, ConfigError),
    ({"data": named("cifar10", root="nowhere")}, DataError),
    ({"objective": ObjectiveConfig(method=CatRs(teacher="nowhere"))}, CheckpointError),
]


@pytest.mark.parametrize(("change", "error"), WRONG)
@pytest.mark.parametrize("resume", [False, True])
def test_a_failed_start_claims_nothing(
    change: dict[str, Any], error: type[SmoothheadsError], resume: bool, tmp_path: Path
) -> None:
    with pytest.raises(error):
        train_run(replace(CONFIG, **change), tmp_path)
    assert [p.name for p in tmp_path.iterdir() if not p.name.startswith(".")] == []
    assert (train_run(CONFIG, tmp_path, resume=resume) / "model.safetensors").exists()


@pytest.mark.parametrize("resume", [False, True])
def test_a_run_that_saved_nothing_can_be_replaced(resume: bool, tmp_path: Path) -> None:
    def interrupt(_: StepDone | EpochDone) -> None:
        raise KeyboardInterrupt

    other = replace(CONFIG, train=replace(CONFIG.train, lr=0.2))
    with pytest.raises(KeyboardInterrupt):
        train_run(other, tmp_path, on_event=interrupt)
    assert (tmp_path / "config.json").exists()
    train_run(CONFIG, tmp_path, resume=resume)
    assert json.loads((tmp_path / "config.json").read_text())["train"]["lr"] == 0.1
