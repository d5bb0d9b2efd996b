"""One network trained by one process or by several: the same bits, one voice, one message when it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from smoothheads import checkpoint
from smoothheads.data import Splits
from smoothheads.data.loader import Loader
from smoothheads.errors import ConfigError, TrainingError
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives import Gaussian, ObjectiveConfig, TeachingConfig
from smoothheads.runs.train import train_run
from smoothheads.training import RunConfig, TrainConfig
from smoothheads.training.loop import EpochDone, StepDone, Trainer

Network = Callable[..., MultiHead]
forks = pytest.mark.skipif(sys.platform == "win32", reason="forks the ranks")


@dataclass(frozen=True)
class Ranked:
    folder: Path
    codes: dict[str, list[int]]
    """What the ranks of each scenario ended with."""

    def weights(self, name: str) -> bytes:
        return (self.folder / name / "checkpoint" / "model.safetensors").read_bytes()

    def metrics(self, name: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        return [{key: value for key, value in line.items() if key != "seconds"} for line in lines]

    def printed(self, name: str, rank: int) -> list[str]:
        return (self.folder / f"{name}-printed-{rank}").read_text().splitlines()


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Ranked:
    """All of it in one process, which loads torch only once."""
    folder = tmp_path_factory.mktemp("ranked")
    command = [sys.executable, str(Path(__file__).with_name("ranked.py")), str(folder)]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    return Ranked(folder, json.loads(shown.splitlines()[-1]))


METHODS = [
    "paced",
    "superloss",
    "stability",
    "consistency",
    "smoothmix",
    "smoothadv",
    "ddn",
    "macer",
]
METHODS += ["cat-rs", "acr-targeted", "drt"]


@forks
@pytest.mark.parametrize("name", METHODS)
def test_two_ranks_train_what_one_process_trains(ranked: Ranked, name: str) -> None:
    assert ranked.codes["one"] == [0]
    assert ranked.codes["two"] == [0, 0]
    assert ranked.weights(f"{name}-1") == ranked.weights(f"{name}-2")
    assert ranked.metrics(f"{name}-1") == ranked.metrics(f"{name}-2")


@forks
@pytest.mark.parametrize("name", ["paced", "cat-rs"])
def test_four_ranks_do_too(ranked: Ranked, name: str) -> None:
    assert ranked.weights(f"{name}-4") == ranked.weights(f"{name}-1")
    assert ranked.metrics(f"{name}-4") == ranked.metrics(f"{name}-1")


@forks
def test_soft_labels_are_shared_out_and_equal(ranked: Ranked) -> None:
    made = [(ranked.folder / f"cat-rs-{count}" / "prepared.safetensors").read_bytes() for count in (1, 2, 4)]
    assert made[0] == made[1] == made[2]


@forks
def test_a_run_goes_on_with_another_number_of_ranks(ranked: Ranked) -> None:
    """Two ranks, of which one was asked to end, then four, then one."""
    assert ranked.codes["stopped"] == [130] * 2
    assert ranked.codes["stopped again"] == [130] * 4
    assert ranked.codes["resumed"] == [0]
    assert ranked.weights("resumed") == ranked.weights("paced-1")
    assert ranked.metrics("resumed") == ranked.metrics("paced-1")


@forks
def test_the_first_rank_alone_writes_and_prints(ranked: Ranked) -> None:
    assert ranked.codes["told"] == [0, 0]
    assert ranked.printed("told", 0)[-1] == str(ranked.folder / "told" / "checkpoint")
    assert ranked.printed("told", 1) == []
    for rank in (0, 1):
        assert list((ranked.folder / f"told-place-{rank}").iterdir()) == []
    assert checkpoint.load(ranked.folder / "told" / "checkpoint").config.train.shards == 2


@forks
def test_a_killed_rank_ends_the_run_with_one_message(ranked: Ranked) -> None:
    assert ranked.codes["lost"] == [2, -9]
    assert ranked.printed("lost", 0)[-1].startswith("smoothheads: At least one of 2 ranks is lost (")
    assert "run again with --resume" in ranked.printed("lost", 0)[-1]
    assert ranked.printed("lost", 1) == []
    assert not (ranked.folder / "lost" / "checkpoint").exists()


@forks
def test_a_folder_that_is_not_shared_is_named_by_the_rank_that_misses_it(ranked: Ranked) -> None:
    assert ranked.codes["apart"] == [2, 2]
    (message,) = ranked.printed("apart", 1)
    assert str(ranked.folder / "elsewhere") in message
    assert "choose an --out that all nodes share" in message
    assert "(rank 1 on" in message
    assert ranked.printed("apart", 0) == []


@forks
def test_an_ensemble_is_trained_apart_by_all_ranks(ranked: Ranked) -> None:
    assert ranked.codes["members"] == [0, 0]
    assert ranked.weights("members-2") == ranked.weights("members-1")
    assert len(checkpoint.load(ranked.folder / "members-2" / "checkpoint").model.heads) == 2


@forks
def test_ranks_that_were_told_otherwise_are_refused(ranked: Ranked) -> None:
    assert ranked.codes["unlike"] == [2, 2]
    (message,) = ranked.printed("unlike", 1)
    assert "rank 0: train.lr = 0.1 instead of 0.2" in message or "train.lr = 0.2 instead of 0.1" in message
    assert "(rank 1 on" in message
    assert not any("smoothheads:" in line for line in ranked.printed("unlike", 0))


@forks
@pytest.mark.skipif(torch.cuda.is_available(), reason="has a GPU")
def test_a_device_that_is_not_there_is_one_message(ranked: Ranked) -> None:
    assert ranked.codes["no gpu"] == [2, 2]
    (message,) = ranked.printed("gpu", 0) + ranked.printed("gpu", 1)
    assert "This machine has no device 'cuda:0'" in message


def test_ranks_without_a_meeting_point_are_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (("RANK", "1"), ("WORLD_SIZE", "2")):
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match="WORLD_SIZE is set without MASTER_ADDR: start ranks with torchrun"):
        train_run(RunConfig(train=TrainConfig(shards=2)), tmp_path / "run")


@pytest.mark.parametrize("shards", [1, 3])
def test_ranks_must_divide_the_micro_batches(
    shards: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    message = f"2 ranks cannot share {shards} micro-batches: set --train.shards to a multiple of 2"
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=message):
        train_run(RunConfig(train=TrainConfig(shards=shards)), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def trainer(
    network: Network, data: Splits, objective: ObjectiveConfig | None = None, **changes: Any
) -> Trainer:
    settings: dict[str, Any] = {"sigma": 0.3, "epochs": 1, "batch": 50, "precision": "float32", "shards": 3}
    config = TrainConfig(**(settings | changes))
    return Trainer(network(heads=2), data.train, config=config, objective=objective or ObjectiveConfig())


def test_more_micro_batches_than_images_are_refused(tiny_network: Network, small_digits: Splits) -> None:
    with pytest.raises(ConfigError, match="A step of 40 images cannot be split into 41 micro-batches"):
        trainer(tiny_network, small_digits, shards=41)


def test_one_micro_batch_is_not_noted_so_that_old_runs_keep_their_keys() -> None:
    from smoothheads.config import from_dict, to_dict

    assert "shards" not in to_dict(TrainConfig())
    assert to_dict(TrainConfig(shards=2)) != to_dict(TrainConfig())
    assert from_dict(TrainConfig, to_dict(TrainConfig(shards=2))).shards == 2


def test_batch_statistics_are_those_of_the_micro_batches(tiny_network: Network, small_digits: Splits) -> None:
    """Against the same step written plainly: three forwards from the same buffers, their changes averaged."""
    objective = ObjectiveConfig(method=Gaussian(), teaching=TeachingConfig(weights="uniform"))
    ours = trainer(tiny_network, small_digits, objective)
    ours.objective.config = replace(
        ours.objective.config, diversity=replace(ours.objective.config.diversity, weight=0.0)
    )
    plain = tiny_network(heads=2).to(memory_format=torch.channels_last).train()  # type: ignore[call-overload]
    before = {name: value.clone() for name, value in plain.state_dict().items()}
    event = next(ours.run())
    assert isinstance(event, StepDone)

    from smoothheads import seeding

    batch = next(Loader(small_digits.train, 50, 0, augment=False).epoch(1))
    after: list[dict[str, torch.Tensor]] = []
    losses = []
    for number, start in enumerate((0, 14, 27)):
        images, labels, _ = (each[start : (14, 27, 40)[number]] for each in batch)
        plain.load_state_dict(before)
        noise = torch.randn(images.shape, generator=seeding.generator(0, "noise", 0, number))
        logits = plain(images + 0.3 * noise)
        loss = torch.stack([nn.functional.cross_entropy(head, labels) for head in logits]).mean()
        (loss * len(images) / 40).backward()  # type: ignore[no-untyped-call]
        losses.append(float(loss.detach()) * len(images) / 40)
        after.append({name: value.clone() * len(images) / 40 for name, value in plain.state_dict().items()})
    assert event.loss == pytest.approx(sum(losses), rel=1e-5)
    moved = 0
    for name, value in ours.model.state_dict().items():
        if name.endswith(("running_mean", "running_var")):
            torch.testing.assert_close(value, sum(each[name] for each in after), rtol=1e-5, atol=1e-6)
            moved += not torch.equal(value, before[name])
        elif name.endswith("num_batches_tracked"):
            assert int(value) == 1
    assert moved > 10
    for mine, (name, theirs) in zip(ours.model.parameters(), plain.named_parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-6, msg=name)


def test_resume_with_micro_batches_gives_identical_bits(tiny_network: Network, small_digits: Splits) -> None:
    objective = ObjectiveConfig(teaching=TeachingConfig(pace="quantile", window=30))
    whole = trainer(tiny_network, small_digits, objective, epochs=2)
    reports = [event.metrics for event in whole.run() if isinstance(event, EpochDone)]
    half = trainer(tiny_network, small_digits, objective, epochs=2)
    events = half.run()
    for _ in range(5):
        next(events)
    rest = trainer(tiny_network, small_digits, objective, epochs=2)
    rest.restore(half.state())
    resumed = [event.metrics for event in rest.run() if isinstance(event, EpochDone)]
    assert resumed[-1] | {"seconds": 0} == reports[-1] | {"seconds": 0}
    for mine, theirs in zip(whole.model.state_dict().values(), rest.model.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


def test_a_loss_that_is_not_finite_leaves_the_buffers(tiny_network: Network, small_digits: Splits) -> None:
    ours = trainer(tiny_network, small_digits)
    with torch.no_grad():
        next(ours.model.heads.parameters()).fill_(float("nan"))
    before = {name: value.clone() for name, value in ours.model.named_buffers()}
    with pytest.raises(TrainingError, match="The loss is nan in epoch 1, step 1"):
        list(ours.run())
    assert all(torch.equal(before[name], value) for name, value in ours.model.named_buffers())


def test_dropout_follows_the_micro_batch_and_not_the_process(small_digits: Splits) -> None:
    """torch's global generator, from which dropout draws, differs from rank to rank."""

    def trained(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(0)
        trunk = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Dropout(0.5))
        model = MultiHead(trunk, [nn.Linear(32, 10) for _ in range(2)])
        torch.manual_seed(seed)
        list(trainer(lambda **_: model, small_digits).run())
        return list(model.state_dict().values())

    assert all(torch.equal(a, b) for a, b in zip(trained(1), trained(2), strict=True))
