"""Engines compute the votes; statistics never sees a network."""

from smoothheads.certify.engines.base import Engine
from smoothheads.certify.engines.eager import TorchEngine

__all__ = ["Engine", "TorchEngine"]
