"""A method of somebody else's: one class, and everything that ours can do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from smoothheads import cli
from smoothheads.config import from_dict, to_dict
from smoothheads.config.check import at_least
from smoothheads.objectives import METHODS, Curriculum, Losses, Method, ObjectiveConfig, Preparation, Step
from smoothheads.objectives.losses import add_noise, cross_entropy, forward_heads


class LastTwo:
    """Shows the last two images only."""

    def __init__(self, images: int) -> None:
        self.images, self.refreshed = images, torch.zeros(1)

    def refresh(self, epoch: int, hit_fractions: Callable[[int], Tensor]) -> None:
        self.refreshed += hit_fractions(1).numel() == self.images

    def order(self, epoch: int, generator: torch.Generator) -> Tensor:
        return self.images - 1 - torch.arange(self.images) % 2

    def state_dict(self) -> dict[str, Tensor]:
        return {"refreshed": self.refreshed}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        self.refreshed = state["refreshed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Scaled(Method):
    """Gaussian training with a weight per image."""

    name: ClassVar[str] = "scaled"
    scale: float = 2.0
    """Weight of the loss."""

    def check(self) -> None:
        at_least("scale", self.scale, 0)

    def prepare(self, preparation: Preparation) -> Tensor:
        preparation.on_progress(1, 1)
        return torch.full((len(preparation.dataset), 1), self.scale)

    def curriculum(self, images: int) -> Curriculum:
        return LastTwo(images)

    def __call__(self, step: Step) -> Losses:
        assert step.prepared is not None
        noisy = add_noise(step.images, step.sigma, self.draws, step.generator)
        smoothed_LN = cross_entropy(forward_heads(step.model, noisy, self.draws), step.labels).mean(1)
        return Losses(step.prepared[:, 0] * smoothed_LN, smoothed_LN)


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(METHODS, "_components", dict(METHODS._components))
    METHODS.register(Scaled)


@pytest.mark.usefixtures("registered")
def test_it_survives_json() -> None:
    config = ObjectiveConfig(method=Scaled(scale=3.0))
    assert from_dict(ObjectiveConfig, to_dict(config)) == config


@pytest.mark.usefixtures("registered")
def test_the_command_line_trains_it_with_its_own_options(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["train", "digits-single", "--method", "scaled", "--objective.method.scale", "3"]
    arguments += ["--train.epochs", "1", "--data.subset.first", "24", "--out", str(tmp_path)]
    assert cli.main(arguments) == 0
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["objective"]["method"] == {"name": "scaled", "draws": 1, "scale": 3.0}
    assert (tmp_path / "prepared.safetensors").exists()
    assert "checkpoint" in capsys.readouterr().out


def test_a_misspelt_method_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["train", "digits-single", "--method", "gausian"]) == 2
    assert "did you mean 'gaussian'" in capsys.readouterr().err
