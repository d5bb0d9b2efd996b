"""The optional packages of the OpenVINO engine, imported when they are used."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType

from smoothheads.errors import MissingExtraError

EXTRA = "openvino"


def installed() -> bool:
    return importlib.util.find_spec("openvino") is not None


def openvino() -> ModuleType:
    return _imported("openvino")


def nncf() -> ModuleType:
    module = _imported("nncf")
    module.set_log_level("ERROR")
    return module


def _imported(package: str) -> ModuleType:
    # Both report each import to their makers through this package; without it they keep quiet.
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtraError(package, EXTRA) from None
