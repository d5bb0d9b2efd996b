"""Engines compute the votes; statistics never sees a network."""

from smoothheads.certify.engines.base import Engine
from smoothheads.certify.engines.eager import TorchEngine
from smoothheads.certify.engines.factory import make_engine

__all__ = ["Engine", "TorchEngine", "make_engine"]
