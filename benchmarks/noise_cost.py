"""What exact integer noise costs against float noise: votes per second on the same network, interleaved.

    python -m benchmarks.noise_cost

Every round times one block of each noise by processor time, in an order that turns from round to round, so
that other work on the machine disturbs all alike. Ratios are medians over rounds with exact intervals.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import torch
import tyro
from benchmarks.timing import Job, interleaved, ratio
from numpy.typing import NDArray

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import ConversionCache, Network, TorchEngine
from smoothheads.certify.votes import VoteCounter
from smoothheads.data import DataInfo
from smoothheads.device import threads
from smoothheads.models import ModelConfig, build
from smoothheads.noise import NOISES, FloatGaussian, Noise
from smoothheads.noise.base import FloatNoise
from smoothheads.results.metrics import Floats
from smoothheads.types import Grid, Phase, Pixels


class UnkeyedNoise(FloatNoise):
    """What the reference codes draw: the next numbers of torch's generator, whatever the block."""

    def noisy(self, image: Pixels, index: int, phase: Phase, block: int) -> NDArray[np.float32]:  # noqa: ARG002
        clean = torch.from_numpy(image).float() / self.grid.max_value
        copies: NDArray[np.float32] = (
            torch.randn(self.block_size, *image.shape) * self.sigma + clean
        ).numpy()
        return copies


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    arch: str = "resnet20"
    side: int = 32
    sigma: float = 0.5
    block: int = 100
    rounds: int = 200


def make_jobs(settings: Settings) -> tuple[dict[str, Job], dict[str, Job]]:
    """For each noise: votes of a block, and its noisy copies alone."""
    grid, half, shape = Grid(255), (0.5,) * 3, (3, settings.side, settings.side)
    model = build(ModelConfig(arch=settings.arch), shape=shape, classes=10, mean=half, std=half, seed=0)
    info = DataInfo("noise", grid, shape, tuple(map(str, range(10))), half, half)
    image = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    noises: dict[str, Noise] = {
        "grid": NOISES.get("grid")().keyed(settings.sigma, grid, 0, settings.block),
        "keyed float": NOISES.get("gaussian")().keyed(settings.sigma, grid, 0, settings.block),
        "torch.randn": UnkeyedNoise(FloatGaussian(), settings.sigma, grid, 0, settings.block),
    }

    def voter(noise: Noise) -> Job:
        config = CertifyConfig(sigma=noise.sigma, block=settings.block)
        engine = TorchEngine(config, Network(model, info, noise, ConversionCache()))
        counter = VoteCounter(engine, noise, config)
        return lambda block: counter.votes(image, 0, Phase.ESTIMATION, block, settings.block).n

    def copier(noise: Noise) -> Job:
        return lambda block: len(noise.noisy(image, 0, Phase.ESTIMATION, block))

    return {name: voter(noise) for name, noise in noises.items()}, {
        name: copier(noise) for name, noise in noises.items()
    }


def lines(what: str, rates: dict[str, Floats]) -> list[str]:
    rows = []
    for name, each in rates.items():
        found = ratio(each, rates["grid"])
        more, least, most = (f"{100 * (x - 1):+.2f}" for x in (found.median, found.low, found.high))
        against = "" if name == "grid" else f"{more} % ({least} to {most})"
        rows.append(f"| {what} | {name} | {np.median(each):,.0f} | {against} |")
    return rows


def main(settings: Settings) -> None:
    with threads(1):
        votes, copies = make_jobs(settings)
        rows = [
            row
            for what, jobs in (("votes", votes), ("noisy copies alone", copies))
            for row in lines(what, interleaved(jobs, settings.rounds, time.process_time))
        ]
    print("| | noise | per second | grid noise takes, against this (95 % interval) |\n|---|---|---:|---:|")
    print("\n".join(rows))


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
