"""Which software made an artefact, and on what."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path


def versions() -> dict[str, str]:
    """Of everything that can change a bit of the result."""
    packages = ("smoothheads", "torch", "numpy", "scipy")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in packages}


def processor() -> str:
    """Its name, as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
