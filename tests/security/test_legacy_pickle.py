"""A foreign checkpoint that carries code is refused with its reason, and the code does not run."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from smoothheads.checkpoint.legacy import load_legacy, read_legacy
from smoothheads.errors import CheckpointError
from smoothheads.models import ModelConfig, build


class Runs:
    """Calls a function when it is unpickled without care."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.function, self.arguments


PLACES: dict[str, Callable[[Runs], object]] = {
    "alone": lambda evil: evil,
    "weights": lambda evil: {"state_dict": {"1.conv1.weight": evil}},
    "beside": lambda evil: {"state_dict": {"1.conv1.weight": torch.ones(1)}, "optimizer": [{"lr": (evil,)}]},
    "after": lambda evil: {"epoch": 1, "state_dict": {"a": torch.ones(1)}, "zzz": evil},
}


def touching(witness: Path) -> dict[str, Runs]:
    return {
        "system": Runs(os.system, f"touch {witness}"),
        "mkdir": Runs(os.mkdir, str(witness)),
        "eval": Runs(eval, f"open({str(witness)!r}, 'w')"),
        "load": Runs(torch.load, str(witness)),
    }


@pytest.mark.parametrize("kind", ["system", "mkdir", "eval", "load"])
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("old_format", [False, True])
def test_nothing_runs(tmp_path: Path, kind: str, place: str, old_format: bool) -> None:
    witness, path = tmp_path / "witness", tmp_path / "evil.pth"
    content = PLACES[place](touching(witness)[kind])
    torch.save(content, path, _use_new_zipfile_serialization=not old_format)
    with pytest.raises(CheckpointError, match=r"more than tensors.*calls of \S+.*nothing was executed"):
        read_legacy(path)
    assert not witness.exists()


def test_the_reason_is_named(tmp_path: Path) -> None:
    path = tmp_path / "evil.pth"
    evil = touching(tmp_path / "witness")
    torch.save({"state_dict": {}, "a": evil["mkdir"], "b": evil["eval"]}, path)
    with pytest.raises(CheckpointError, match=r"mkdir.*eval|eval.*mkdir"):
        read_legacy(path)


@pytest.mark.filterwarnings("ignore:Detected pickle protocol")
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_bare_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    witness, path = tmp_path / "witness", tmp_path / "evil.pth"
    path.write_bytes(pickle.dumps(touching(witness)["mkdir"], protocol))
    with pytest.raises(CheckpointError):
        read_legacy(path)
    assert not witness.exists()


def test_a_whole_pickled_module_is_refused_and_the_network_stays_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "module.pth"
    torch.save(nn.Linear(2, 2), path)
    model = build(ModelConfig(), shape=(1, 8, 8), classes=2, mean=[0.5], std=[0.5], seed=0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(CheckpointError, match=r"torch\.nn\.modules\.linear\.Linear.*model\.state_dict\(\)"):
        load_legacy(path, model)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_the_witness_would_have_appeared(tmp_path: Path) -> None:
    """Without care these files do run their code: the tests above can fail."""
    witness, path = tmp_path / "witness", tmp_path / "evil.pth"
    torch.save({"a": touching(witness)["mkdir"]}, path)
    torch.load(path, weights_only=False)
    assert witness.is_dir()
