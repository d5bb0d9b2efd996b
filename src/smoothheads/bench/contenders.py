"""Who takes part: the plain loops, ART, and every engine that this machine has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import torch
from torch import nn

from smoothheads import device as devices
from smoothheads.bench import art, plain
from smoothheads.bench.networks import Bench, separate
from smoothheads.bench.plain import Ensemble, MeanOfHeads
from smoothheads.bench.timing import Job
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import Engine, Store
from smoothheads.certify.engines.base import BlockEngine
from smoothheads.data import Dataset
from smoothheads.errors import ConfigError, one_of
from smoothheads.smoothed import Smoothed
from smoothheads.types import Phase

PLAIN: Final = "plain loop"
BATCH: Final = 128  # samples per pass of the plain loops
ART_N0: Final = 100

ENGINES: Final[Mapping[str, Mapping[str, Any]]] = {
    "torch": {},
    "torch compiled": {"compile": "on"},
    "torch bfloat16": {"precision": "bfloat16"},
    "torch bfloat16 compiled": {"precision": "bfloat16", "compile": "on"},
    "openvino float32": {"engine": "openvino"},
    "openvino bfloat16": {"engine": "openvino", "precision": "bfloat16"},
    "openvino int8": {"engine": "openvino", "precision": "int8"},
}
"""What differs from the torch engine in float32."""
QUICK: Final = tuple(name for name in ENGINES if "compiled" not in name)
"""Those that do not take a minute to set up."""


@dataclass(slots=True)
class Field:
    """The contenders that could be set up, and why the others could not."""

    jobs: dict[str, Job] = field(default_factory=dict)
    smoothed: dict[str, Smoothed] = field(default_factory=dict)
    """Of the engines."""
    left_out: list[str] = field(default_factory=list)

    def add(self, name: str, make: Callable[[], Job]) -> None:
        try:
            self.jobs[name] = make()
        except ConfigError as error:
            self.left_out.append(f"{name} left out: {error}")

    def add_plain(self, bench: Bench, config: CertifyConfig, samples: int) -> tuple[str, ...]:
        """The loop over noisy samples with the network as it is and, if there are several heads, with as many
        whole networks; their names."""
        networks: dict[str, nn.Module] = {PLAIN: MeanOfHeads(bench.model)}
        if len(bench.model.heads) > 1:
            networks[f"{len(bench.model.heads)} networks"] = Ensemble(separate(bench.model))
        for name, network in networks.items():
            self.jobs[name] = plain_job(
                network, bench.images, samples, sigma=config.sigma, threads=config.engine.threads
            )
        return tuple(networks)

    @property
    def engines(self) -> dict[str, BlockEngine]:
        return {name: cast(BlockEngine, smoothed.engine) for name, smoothed in self.smoothed.items()}

    def add_engine(self, name: str, bench: Bench, config: CertifyConfig, folder: Path, samples: int) -> None:
        def job() -> Job:
            self.smoothed[name] = make(bench, config, folder)
            return engine_job(self.smoothed[name].engine, bench, samples)

        self.add(name, job)


def plain_job(network: nn.Module, images: Dataset, samples: int, *, sigma: float, threads: int) -> Job:
    x_CHW = torch.from_numpy(images.image(0)).float() / images.info.grid.max_value
    network.eval()

    def votes(_: int) -> int:
        with devices.threads(threads):
            plain.sample_noise(network, x_CHW, samples, sigma=sigma, batch=BATCH, classes=images.info.classes)
        return samples

    return votes


def art_job(network: nn.Module, bench: Bench, config: CertifyConfig, samples: int) -> Job:
    n0 = min(ART_N0, samples // 2)
    smoothed = art.smoothing(
        network,
        bench.info.shape,
        classes=bench.info.classes,
        sigma=config.sigma,
        n0=n0,
        alpha=config.alpha,
    )
    image = bench.image() / bench.info.grid.max_value

    def votes(_: int) -> int:
        with devices.threads(config.engine.threads):
            art.certify(smoothed, image, samples - n0, BATCH)
        return samples

    return votes


def engine_job(engine: Engine, bench: Bench, samples: int) -> Job:
    image, size = bench.image(), engine.noise.block_size
    blocks = -(-samples // size)

    def votes(turn: int) -> int:
        return engine.votes(image, 0, Phase.ESTIMATION, turn * blocks, samples).n

    return votes


def settings_of(name: str) -> Mapping[str, Any]:
    if name not in ENGINES:
        raise one_of("engine", name, ENGINES)
    return ENGINES[name]


def make(bench: Bench, config: CertifyConfig, folder: Path) -> Smoothed:
    """Converted networks are kept in `folder`. Refuses what would only be emulated here."""
    precision = getattr(config.engine, "precision", "float32")
    if precision == "bfloat16" and not devices.computes_bfloat16(devices.parse(config.device)):
        raise ConfigError("a processor that computes bfloat16 natively", "another one", "use float32 or int8")
    return Smoothed(bench.model, bench.info, config, store=Store(folder, bench.training))
