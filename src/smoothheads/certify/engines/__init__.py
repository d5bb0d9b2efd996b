"""Engines compute the votes; statistics never sees a network."""

from smoothheads.certify.engines.artefact import Artefacts
from smoothheads.certify.engines.base import Engine, Request
from smoothheads.certify.engines.choose import Choice, as_stored, choose, undecided
from smoothheads.certify.engines.eager import TorchEngine
from smoothheads.certify.engines.factory import make_engine
from smoothheads.certify.engines.lazy import LazyConsensusEngine, Work, work_of

__all__ = [
    "Artefacts",
    "Choice",
    "Engine",
    "LazyConsensusEngine",
    "Request",
    "TorchEngine",
    "Work",
    "as_stored",
    "choose",
    "make_engine",
    "undecided",
    "work_of",
]
