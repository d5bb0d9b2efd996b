"""Where and how precisely tensors are computed: device, threads, autocast."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from smoothheads.errors import ConfigError
from smoothheads.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

_Set = Callable[[Any], Any]


def cores() -> int:
    """Processor cores that this process may use, as far as the system tells."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse(name: str) -> torch.device:
    """The device called `name`, if this machine has it."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            "a device of this machine", f"{name!r} ({reason})", "use cpu, or cuda with a GPU"
        ) from None
    return device


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """The tensor on the device; on CUDA nobody waits for the copy, for which it must be in pinned memory."""
    if device.type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def computes_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 is native there; emulated, it is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    features = torch.cpu.get_capabilities()
    return bool(features.get("avx512_bf16") or features.get("amx_bf16") or features.get("bf16"))


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """Autocast for `bfloat16` and `float16`, nothing for `float32`."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, {"bfloat16": torch.bfloat16, "float16": torch.float16}[precision])


def strict(device: torch.device) -> AbstractContextManager[None]:
    """Inside the block CUDA computes float32 in float32, and the same input gives the same output.

    What is sampled must not depend on what else the program has set. By default convolutions of float32 may
    round their inputs to 10 bits (TF32), and a measurement (benchmark) or chance (atomic sums) may choose the
    order in which they add up.
    """
    return _strict() if device.type == "cuda" else nullcontext()


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Computes with `count` threads inside the block and gives the old number back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Variables for processes that start inside the block; afterwards they are as they were."""
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _strict() -> Iterator[None]:
    before: list[tuple[_Set, Any]] = []
    flags = _strict_flags()
    for get, set_, _ in flags:
        with suppress(RuntimeError):  # an old name, after its successor was set to something else
            before.append((set_, get()))
    readable = {set_ for set_, _ in before}
    try:
        for _, set_, value in flags:
            if set_ in readable:
                set_(value)
        yield
    finally:
        for set_, value in before:
            set_(value)


def _strict_flags() -> list[tuple[Callable[[], Any], _Set, Any]]:
    """How each is read and set, and to what. Old names come first, since they overwrite their successors."""
    backends: Any = torch.backends
    cudnn = backends.cudnn
    wanted: list[tuple[Any, str, Any]]
    wanted = [(cudnn, "allow_tf32", False), (cudnn, "benchmark", False), (cudnn, "deterministic", True)]
    if hasattr(cudnn, "conv"):  # not before torch 2.9
        successors = backends.cuda.matmul, backends.mkldnn.matmul, cudnn.conv, cudnn.rnn
        wanted += [(each, "fp32_precision", "ieee") for each in successors]
    return [
        (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest"),
        *((partial(getattr, owner, name), partial(setattr, owner, name), to) for owner, name, to in wanted),
    ]
