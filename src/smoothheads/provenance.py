"""Which software made an artefact."""

from __future__ import annotations

import platform
from importlib import metadata


def versions() -> dict[str, str]:
    """Of everything that can change a bit of the result."""
    packages = ("smoothheads", "torch", "numpy", "scipy")
    return {"python": platform.python_version()} | {name: metadata.version(name) for name in packages}
