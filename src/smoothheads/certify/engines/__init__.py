"""Engines compute the votes; statistics never sees a network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from smoothheads.certify.engines.base import ENGINES, Engine, EngineConfig, Network, Request
from smoothheads.lazy import attributes

if TYPE_CHECKING:
    from smoothheads.certify.engines.artefact import Artefacts as Artefacts
    from smoothheads.certify.engines.artefact import Store as Store
    from smoothheads.certify.engines.auto import Auto as Auto
    from smoothheads.certify.engines.auto import choose as choose
    from smoothheads.certify.engines.lazy import Work as Work
    from smoothheads.certify.engines.lazy import work_of as work_of
    from smoothheads.certify.engines.openvino import OpenVino as OpenVino
    from smoothheads.certify.engines.torch import Torch as Torch
else:
    __getattr__ = attributes(
        __name__,
        {
            "artefact": "Artefacts Store",
            "auto": "Auto choose",
            "lazy": "Work work_of",
            "openvino": "OpenVino",
            "torch": "Torch",
        },
    )

__all__ = ["ENGINES", "Engine", "EngineConfig", "Network", "Request"]
