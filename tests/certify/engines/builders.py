"""Vote counters around any network, for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import ENGINES, ConversionCache, ConvertedModel, Network
from smoothheads.certify.votes import VoteCounter
from smoothheads.data import DataInfo
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import Noise
from smoothheads.types import Grid


def any_info(shape: tuple[int, int, int] = (1, 8, 8)) -> DataInfo:
    """Images of ten classes."""
    names = tuple(map(str, range(10)))
    return DataInfo("any", Grid(16), shape, names, (0.0,) * shape[0], (1.0,) * shape[0])


def network_of(
    model: MultiHead,
    info: DataInfo,
    noise: Noise,
    *,
    converted: Path | tuple[ConvertedModel, ...] | None = None,
    **cache: Any,
) -> Network:
    given = converted if isinstance(converted, tuple) else ()
    folder = converted if isinstance(converted, Path) else None
    return Network(model, info, noise, ConversionCache(folder, given=given, **cache))


def make_counter(
    config: CertifyConfig, model: MultiHead, info: DataInfo, noise: Noise, **cache: Any
) -> VoteCounter:
    engine = ENGINES.get(config.engine)(config, network_of(model, info, noise, **cache))
    return VoteCounter(engine, noise, config)


def torch_counter(model: MultiHead, noise: Noise, **settings: Any) -> VoteCounter:
    config = CertifyConfig(sigma=0.5, seed=0, block=noise.block_size, **settings)
    return make_counter(config, model, any_info(), noise)
