"""Engines around any network, for tests."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import Engine, Network, Store, Torch, auto
from smoothheads.certify.engines.artefact import Artefacts, OnProgress, Training
from smoothheads.certify.engines.torch import LazyTorchEngine, TorchEngine
from smoothheads.data import DataInfo
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.types import Grid


def network_of(
    model: MultiHead, noise: Noise, *, shape: tuple[int, int, int] = (1, 8, 8), aggregation: str = "ensemble"
) -> Network:
    """With images of ten classes."""
    names = tuple(map(str, range(10)))
    info = DataInfo("any", Grid(16), shape, names, (0.0,) * shape[0], (1.0,) * shape[0])
    return Network(model, info, noise, aggregation, Store())


def torch_engine(
    model: MultiHead,
    noise: Noise,
    *,
    aggregation: str = "ensemble",
    recorder: Any = None,
    **settings: Any,
) -> TorchEngine:
    precision = settings.pop("precision", "float32")
    config = Torch(**settings)
    object.__setattr__(config, "precision", precision)  # float16 too, which is refused on a processor
    kind = LazyTorchEngine if config.lazy_consensus else TorchEngine
    network = network_of(model, noise, aggregation=aggregation)
    return kind(config, network, recorder=recorder)


def network_for(
    config: CertifyConfig,
    model: MultiHead,
    info: DataInfo,
    noise: Noise,
    *,
    artefacts: Path | Artefacts | None = None,
    training: Training | None = None,
    on_progress: OnProgress | None = None,
) -> Network:
    given = artefacts if isinstance(artefacts, tuple) else ()
    folder = artefacts if isinstance(artefacts, Path) else None
    return Network(model, info, noise, config.aggregation, Store(folder, training, given, on_progress))


def make_engine(config: CertifyConfig, *arguments: Any, **options: Any) -> Engine:
    return config.engine.build(network_for(config, *arguments, **options))


class Chosen(NamedTuple):
    config: CertifyConfig
    notes: tuple[str, ...]


def choose(
    config: CertifyConfig,
    *arguments: Any,
    images: int = 1,
    clock: auto.Clock = time.perf_counter,
    **options: Any,
) -> Chosen:
    network = network_for(config, *arguments, **options)
    samples = images * config.budget.typical_samples
    choice = auto.choose(config.engine, network, samples=samples, clock=clock)
    return Chosen(config.changed(engine=choice.config), choice.notes)
