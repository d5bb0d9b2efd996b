"""Where and how precisely tensors are computed: device, threads, autocast."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch

from smoothheads.errors import ConfigError


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


def computes_bfloat16(device: torch.device) -> bool:
    """Whether bfloat16 is native there; emulated, it is slower than float32."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    features = torch.cpu.get_capabilities()
    return bool(features.get("avx512_bf16") or features.get("amx_bf16") or features.get("bf16"))


def autocast(device: torch.device, precision: str) -> AbstractContextManager[None]:
    """Autocast for `bfloat16`, nothing for `float32`."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, torch.bfloat16)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Computes with `count` threads inside the block and gives the old number back."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
