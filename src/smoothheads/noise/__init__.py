"""Keyed certification noise."""

from smoothheads.errors import one_of
from smoothheads.noise.base import Noise, keyed_uniform
from smoothheads.noise.gaussian import GaussianNoise
from smoothheads.types import Grid

__all__ = ["GaussianNoise", "Noise", "keyed_uniform", "make_noise"]


def make_noise(name: str, sigma: float, grid: Grid, seed: int, block_size: int) -> Noise:
    if name == "gaussian":
        return GaussianNoise(sigma, grid, seed, block_size)
    raise one_of("noise", name, ["gaussian"])
