"""Where and how precisely tensors are computed: device, threads, autocast. Torch is imported when needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any

from smoothheads.errors import ConfigError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


def cores() -> int:
    """Returns how many processor cores this process may use, as far as the system says."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS and Windows
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parse(name: str) -> torch.device:
    """Returns the device called `name`; raises ConfigError if this machine does not have it."""
    import torch

    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(
            f"This machine has no device {name!r} ({reason}): use cpu, or cuda where there is a GPU."
        ) from None
    return device


def sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Returns the tensor on the device; a copy to CUDA goes through pinned memory, so that nobody waits."""
    if device.type == "cuda" and not tensor.is_cuda:
        return tensor.pin_memory().to(device, non_blocking=True)
    return tensor.to(device)


def computes_bfloat16(device: torch.device) -> bool:
    """Returns whether bfloat16 is native there; emulated, it is slower than float32."""
    import torch

    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    features = torch.cpu.get_capabilities()
    return bool(features.get("avx512_bf16") or features.get("amx_bf16") or features.get("bf16"))


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """Returns autocast for `bfloat16` and `float16`, and nothing for `float32`."""
    import torch

    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, {"bfloat16": torch.bfloat16, "float16": torch.float16}[precision])


@contextmanager
def strict(device: torch.device) -> Iterator[None]:
    """Lets CUDA compute float32 in float32, with the same output for the same input, inside the block.

    What is sampled must not depend on what else the program has set. By default convolutions of float32 may
    round their inputs to 10 bits (TF32), and a measurement (benchmark) or chance (atomic sums) may choose the
    order in which they add up.
    """
    import torch

    if device.type != "cuda":
        yield
        return
    backends: Any = torch.backends
    cudnn = backends.cudnn
    # Old names come first, because setting them overwrites their successors.
    flags: list[tuple[Any, str, Any]]
    flags = [(cudnn, "allow_tf32", False), (cudnn, "benchmark", False), (cudnn, "deterministic", True)]
    if hasattr(cudnn, "conv"):  # from torch 2.9 on
        successors = backends.cuda.matmul, backends.mkldnn.matmul, cudnn.conv, cudnn.rnn
        flags += [(each, "fp32_precision", "ieee") for each in successors]
    # Note what is set now, as far as it can be read.
    matmul, before = None, []
    with suppress(RuntimeError):
        matmul = torch.get_float32_matmul_precision()
    for owner, name, _ in flags:
        with suppress(RuntimeError):  # an old name cannot be read once its successor was set otherwise
            before.append((owner, name, getattr(owner, name)))
    readable = {(id(owner), name) for owner, name, _ in before}
    try:
        # Compute strictly inside the block.
        if matmul is not None:
            torch.set_float32_matmul_precision("highest")
        for owner, name, value in flags:
            if (id(owner), name) in readable:
                setattr(owner, name, value)
        yield
    finally:
        # Give everything back in the same order.
        if matmul is not None:
            torch.set_float32_matmul_precision(matmul)
        for owner, name, value in before:
            setattr(owner, name, value)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Computes with `count` threads inside the block and restores the old number afterwards."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Sets variables for processes that start inside the block; afterwards they are as they were."""
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
