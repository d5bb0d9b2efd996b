"""Names and modules that are imported when they are first used, so that settings are parsed without torch."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

__all__ = ["LazyModule", "attributes", "optimize", "special", "stats", "torch"]


def attributes(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """The `__getattr__` of a package whose names (separated by blanks) live in the modules `homes`, where
    `name=other` is called `other`."""
    home = {
        name.partition("=")[0]: (module, name.rpartition("=")[2])
        for module, names in homes.items()
        for name in names.split()
    }

    def get(name: str) -> Any:
        if name not in home:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module, attribute = home[name]
        return getattr(importlib.import_module(f"{package}.{module}"), attribute)

    return get


class LazyModule:
    """Stands for a module that is heavy to import; components that compute hold torch by one of these."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)


if TYPE_CHECKING:
    import torch
    from scipy import optimize, special, stats
else:
    torch = LazyModule("torch")
    optimize, special, stats = (LazyModule(f"scipy.{name}") for name in ("optimize", "special", "stats"))
