from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from smoothheads import device as devices

BACKENDS: Any = torch.backends
CPU, CUDA = torch.device("cpu"), torch.device("cuda")

FLAGS = [
    (BACKENDS.cudnn, "benchmark"),
    (BACKENDS.cudnn, "deterministic"),
    (BACKENDS.cuda.matmul, "fp32_precision"),
    (BACKENDS.mkldnn.matmul, "fp32_precision"),
    (BACKENDS.cudnn.conv, "fp32_precision"),
    (BACKENDS.cudnn.rnn, "fp32_precision"),
]
OLD = [(BACKENDS.cuda.matmul, "allow_tf32"), (BACKENDS.cudnn, "allow_tf32")]


def state() -> list[Any]:
    found = [getattr(owner, name) for owner, name in FLAGS]
    for owner, name in OLD:
        try:
            found.append(getattr(owner, name))
        except RuntimeError:  # old and new names have been mixed
            found.append("mixed")
    return found


@pytest.fixture(autouse=True)
def _flags_as_before() -> Iterator[None]:
    before = state()
    yield
    for (owner, name), value in [*zip(OLD, before[6:], strict=True), *zip(FLAGS, before[:6], strict=True)]:
        setattr(owner, name, value)
    assert state() == before


@pytest.mark.parametrize(
    "chosen",
    [
        [],
        [(BACKENDS.cudnn, "benchmark", True)],
        [(BACKENDS.cuda.matmul, "allow_tf32", True), (BACKENDS.cudnn, "allow_tf32", False)],
        [(BACKENDS.cuda.matmul, "fp32_precision", "tf32")],
        [(BACKENDS.cudnn.conv, "fp32_precision", "ieee")],
        [(BACKENDS.cudnn, "deterministic", True), (BACKENDS.mkldnn.matmul, "fp32_precision", "bf16")],
    ],
)
def test_strict_is_strict_whatever_was_set_and_gives_it_back(chosen: list[tuple[Any, str, Any]]) -> None:
    for owner, name, value in chosen:
        setattr(owner, name, value)
    before = state()
    with devices.strict(CUDA):
        assert state()[:6] == [False, True, "ieee", "ieee", "ieee", "ieee"]
    assert state() == before
    with pytest.raises(KeyError), devices.strict(CUDA):
        raise KeyError
    assert state() == before


def test_strict_keeps_a_matmul_precision_set_by_its_oldest_name() -> None:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    with devices.strict(CUDA):
        assert torch.get_float32_matmul_precision() == "highest"
        assert not torch.backends.cuda.matmul.allow_tf32
        assert not torch.backends.cudnn.allow_tf32
    assert torch.get_float32_matmul_precision() == "medium"
    torch.set_float32_matmul_precision(before)


def test_strict_leaves_other_devices_alone() -> None:
    before = state()
    with devices.strict(CPU):
        assert state() == before


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_autocast_multiplies_in_the_precision(precision: str) -> None:
    x = torch.ones(2, 2)
    with devices.autocast(CPU, precision):
        assert (x @ x).dtype == getattr(torch, precision)


def test_a_tensor_that_is_there_is_not_sent() -> None:
    x = torch.ones(3)
    assert devices.sent(x, CPU) is x
