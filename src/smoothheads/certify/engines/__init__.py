"""Engines compute the votes; statistics never sees a network."""

from smoothheads.certify.engines.artefact import Artefacts, Store
from smoothheads.certify.engines.auto import Auto, choose
from smoothheads.certify.engines.base import ENGINES, Engine, EngineConfig, Network, Request
from smoothheads.certify.engines.lazy import Work, work_of
from smoothheads.certify.engines.onnx import OnnxRuntime
from smoothheads.certify.engines.openvino import OpenVino
from smoothheads.certify.engines.torch import Torch

__all__ = [
    "ENGINES",
    "Artefacts",
    "Auto",
    "Engine",
    "EngineConfig",
    "Network",
    "OnnxRuntime",
    "OpenVino",
    "Request",
    "Store",
    "Torch",
    "Work",
    "choose",
    "work_of",
]
