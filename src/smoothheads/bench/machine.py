"""What a figure was measured on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final

import torch

from smoothheads import device as devices
from smoothheads.provenance import processor, versions

OTHERS: Final = ("openvino", "nncf", "adversarial-robustness-toolbox")


def describe(threads: int) -> dict[str, Any]:
    """Hardware, versions and date, as every result carries them."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
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


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
