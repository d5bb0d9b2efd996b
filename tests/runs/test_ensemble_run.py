from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from smoothheads import checkpoint, seeding
from smoothheads.data import DataConfig, Dataset, Splits, SubsetConfig, load
from smoothheads.data.published import Digits
from smoothheads.errors import ConfigError, StorageError
from smoothheads.models import ModelConfig, fit_weights
from smoothheads.models.multihead import MultiHead
from smoothheads.runs import ensemble as subject
from smoothheads.runs.ensemble import ensemble_run
from smoothheads.training import RunConfig, TrainConfig
from smoothheads.training.metrics import noisy_logits

RUN = RunConfig(
    data=Digits(subset=SubsetConfig(first=100), validation=0.2),
    model=ModelConfig(arch="resnet8"),
    train=TrainConfig(sigma=0.5),
)
CPU = torch.device("cpu")
Save = Callable[..., Path]


@pytest.fixture
def save(tmp_path: Path, tiny_network: Callable[..., MultiHead], small_digits: Splits) -> Save:
    def make(seed: int, heads: int = 1) -> Path:
        run = replace(RUN, model=ModelConfig(arch="resnet8", heads=heads))
        folder = tmp_path / f"member-{seed}"
        checkpoint.save(folder, tiny_network(heads=heads, seed=seed), run, small_digits.train.info)
        return folder

    return make


@torch.no_grad()
def test_the_joined_checkpoint_loads_like_any_other_and_names_its_members(tmp_path: Path, save: Save) -> None:
    folders = [save(1), save(2, heads=2)]
    joined = checkpoint.load(ensemble_run(folders, tmp_path / "out"))
    members = [checkpoint.load(folder) for folder in folders]
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(joined.model(x), torch.cat([one.model(x) for one in members]))
    assert joined.model.ensemble_weights is None
    assert joined.manifest["members"] == [
        {"weights": one.weights_hash, "heads": len(one.model.heads)} for one in members
    ]


def all_logits(model: MultiHead, dataset: Dataset, *, draws: int, batch: int) -> tuple[Tensor, Tensor]:
    generator = seeding.generator(0, "ensemble-weights", device=CPU)
    pairs = noisy_logits(model, dataset, generator, sigma=0.5, draws=draws, batch=batch)
    logits, labels = zip(*pairs, strict=True)
    return torch.cat(logits, 1), torch.cat(labels)


def test_weights_are_learned_on_noisy_validation_images(tmp_path: Path, save: Save) -> None:
    joined = checkpoint.load(ensemble_run([save(1), save(2)], tmp_path / "a", learn_weights=True, draws=3))
    found_L = joined.model.ensemble_weights
    assert found_L is not None
    images = load(RUN.data).validation
    expected = fit_weights(*all_logits(joined.model, images, draws=3, batch=64))
    assert torch.equal(found_L, expected)
    folders = [tmp_path / "member-1", tmp_path / "member-2"]
    again = ensemble_run(folders, tmp_path / "b", learn_weights=True, draws=3)
    assert checkpoint.load(again).weights_hash == joined.weights_hash


def test_training_images_are_used_only_when_asked_for(
    tmp_path: Path, save: Save, monkeypatch: pytest.MonkeyPatch, small_digits: Splits
) -> None:
    seen: list[int] = []

    def splits(_: DataConfig) -> Splits:
        return small_digits._replace(validation=small_digits.validation.take(np.array([], np.int64)))

    def spy(model: MultiHead, dataset: Dataset, *others: Any, **settings: Any) -> object:
        seen.extend(dataset.indices.tolist())
        return noisy_logits(model, dataset, *others, **settings)

    monkeypatch.setattr(subject, "load", splits)
    monkeypatch.setattr(subject, "noisy_logits", spy)
    monkeypatch.setattr(subject, "IMAGES", 50)
    members = [save(1), save(2)]
    with pytest.raises(ConfigError, match="no validation images to learn weights on"):
        ensemble_run(members, tmp_path / "out", learn_weights=True, draws=1)
    out = ensemble_run(members, tmp_path / "out", learn_weights=True, draws=1, on_training=True)
    assert checkpoint.load(out).manifest["weights_learned_on"] == "training"
    assert seen == small_digits.train.indices[::3].tolist()


def test_weights_for_one_multi_head_checkpoint_keep_its_trunk(tmp_path: Path, save: Save) -> None:
    folder = save(3, heads=2)
    joined = checkpoint.load(ensemble_run([folder], tmp_path / "out", learn_weights=True, draws=1))
    assert joined.config == checkpoint.load(folder).config
    assert joined.model.ensemble_weights is not None
    again = checkpoint.load(ensemble_run([tmp_path / "out", save(4)], tmp_path / "more"))
    assert again.model.ensemble_weights is None, "they were learned for other heads"


def test_noisy_logits_are_those_of_noisy_copies(small_digits: Splits) -> None:
    class Pixels(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x.flatten(1)

    model = MultiHead(Pixels(), [nn.Identity(), nn.Identity()])
    logits_LNC, labels_N = all_logits(model, small_digits.validation, draws=200, batch=7)
    count = len(small_digits.validation)
    assert logits_LNC.shape == (2, 200 * count, 64)
    assert (
        torch.bincount(labels_N).tolist()
        == (torch.bincount(torch.tensor(small_digits.validation.labels)) * 200).tolist()
    )
    clean = torch.stack(
        [torch.from_numpy(small_digits.validation.image(i) / 16).flatten() for i in range(count)]
    )
    first_NC = logits_LNC[0, : 7 * 200].reshape(200, 7, 64).double()
    torch.testing.assert_close(first_NC.mean(0), clean[:7].double(), rtol=0, atol=0.25)
    assert float((first_NC - clean[:7]).std()) == pytest.approx(0.5, rel=0.02)


def test_mistakes_are_refused_and_leave_nothing(tmp_path: Path, save: Save) -> None:
    out, one = tmp_path / "out", save(1)
    with pytest.raises(ConfigError, match="An ensemble has two members or more, not 1"):
        ensemble_run([one], out)
    with pytest.raises(ConfigError, match="An ensemble has two members or more, not 0"):
        ensemble_run([], out, learn_weights=True)
    with pytest.raises(ConfigError, match="One head has nothing to weigh"):
        ensemble_run([one], out, learn_weights=True)
    with pytest.raises(ConfigError, match="draws >= 1"):
        ensemble_run([one, save(2)], out, learn_weights=True, draws=0)
    with pytest.raises(StorageError, match="a new or empty folder"):
        ensemble_run([one, save(2)], one)
    assert not out.exists()
