"""Engines compute the logits of a network; statistics never sees a network."""

from smoothheads.certify.engines.base import ENGINES, Engine, FunctionEngine, Network
from smoothheads.certify.engines.conversion import ConversionCache, ConvertedModel
from smoothheads.certify.engines.onnx import OnnxEngine
from smoothheads.certify.engines.openvino import OpenVinoEngine
from smoothheads.certify.engines.torch import TorchEngine

__all__ = [
    "ENGINES",
    "ConversionCache",
    "ConvertedModel",
    "Engine",
    "FunctionEngine",
    "Network",
    "OnnxEngine",
    "OpenVinoEngine",
    "TorchEngine",
]
