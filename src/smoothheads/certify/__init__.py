"""Certification: statistics on votes (algorithm, bounds, budgets) and engines that count them.

`smoothheads.certify(...)` is `smoothed.certify`. It has the name of this package, which Python puts in its
place as soon as one of its modules is imported; so the package itself can be called.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    def __call__(self, *data: Any, **settings: Any) -> Any:
        # By name, because `smoothed` is a later stage of the pipeline, which this package does not need.
        return importlib.import_module("smoothheads.smoothed").certify(*data, **settings)


sys.modules[__name__].__class__ = _Package
