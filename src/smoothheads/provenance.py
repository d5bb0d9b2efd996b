"""Which software produced a file, and on which processor."""

from __future__ import annotations

import platform
from importlib import metadata
from pathlib import Path

from smoothheads import __version__


def versions() -> dict[str, str]:
    """Returns the versions of everything that can change a bit of the result."""
    packages = {name: metadata.version(name) for name in ("torch", "numpy", "scipy")}
    return {"python": platform.python_version(), "smoothheads": __version__, **packages}


def processor() -> str:
    """Returns the name of the processor as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
