"""Certification results for people: tables, plots and one self-contained page.

`smoothheads.report(...)` is `html.report`. It has the name of this package, which Python puts in its place as
soon as one of its modules is imported; so the package itself can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Package(ModuleType):
    def __call__(self, *sources: Any, **settings: Any) -> Any:
        from smoothheads.report.html import report

        return report(*sources, **settings)


sys.modules[__name__].__class__ = _Package
