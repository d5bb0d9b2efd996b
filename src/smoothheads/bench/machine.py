"""What a figure was measured on."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import torch

from smoothheads import device as devices
from smoothheads.provenance import versions

OTHERS: Final = ("openvino", "nncf", "adversarial-robustness-toolbox")


def describe(threads: int) -> dict[str, Any]:
    """Hardware, versions and date, as every result carries them."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "native_bfloat16": devices.computes_bfloat16(torch.device("cpu")),
        "threads": threads,
        "load": os.getloadavg()[0],
        "versions": versions() | {name: found for name in OTHERS if (found := _version(name))},
    }


def line(machine: Mapping[str, Any]) -> str:
    """The same for people."""
    packages = ", ".join(f"{name} {version}" for name, version in machine["versions"].items())
    return (
        f"{machine['processor']}, {machine['cores']} cores, {machine['instructions']}, "
        f"threads {machine['threads']}, load {machine['load']:.1f}; {packages}; {machine['date']}"
    )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
