from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from benchmarks.methods import BASE, METHODS, Settings, forwards, main, make_run
from tests.data.builders import cifar10_parquet
from torch import Tensor, nn

from smoothheads.data import Splits
from smoothheads.objectives import Drt, Gaussian

SETTINGS = Settings(root="", images=8, batch=4, epochs=5, votes=4)


@pytest.mark.parametrize("label", [label for label in METHODS if label != "drt"])
def test_the_formula_counts_what_passes_through_the_network(label: str, small_digits: Splits) -> None:
    """Two passes' worth for a copy in an attack (eval mode), three for one that is trained on."""
    run = make_run(label, 1, small_digits.train, SETTINGS, torch.full((120, 10), 0.1))
    run.trainer.epoch = SETTINGS.epochs  # after everybody's start
    passed = 0.0

    def count(module: nn.Module, inputs: tuple[Tensor], _: Tensor) -> None:
        nonlocal passed
        passed += len(inputs[0]) * (3 if module.training else 2)

    if run.trainer.curriculum is not None:
        run.trainer.step_in_epoch = 1  # the first step of an epoch may look at all images
    run.trainer.model.register_forward_hook(count)
    run.advance()
    assert passed == 4 * run.expected == 4 * forwards(METHODS[label], 1, 1.0)


def test_a_step_on_heads_costs_their_share() -> None:
    assert forwards(Gaussian(draws=2), 3, 1.5) == 9
    assert forwards(Drt(), 3, 1.5) == 27


def test_the_study_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "methods.json"
    cifar10_parquet(tmp_path)
    main(
        Settings(
            root=str(tmp_path), images=12, batch=4, epochs=1, test=6, votes=2,
            only=("stability",), json=out,
        )
    )  # fmt: skip
    assert "| SOME, stability |" in capsys.readouterr().out
    results = json.loads(out.read_text())["results"]
    assert [(each["method"], each["heads"]) for each in results] == [
        (BASE, 1), ("stability", 1), (BASE, 3), ("stability", 3),
    ]  # fmt: skip
    assert results[0]["cost"] == results[0]["expected"] == 1
