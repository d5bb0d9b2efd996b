"""Keyed certification noise: exact on the grid of the images, or the float Gaussian of the literature."""

from smoothheads.errors import one_of
from smoothheads.noise.base import Noise, keyed_uniform
from smoothheads.noise.gaussian import GaussianNoise
from smoothheads.noise.grid import GridNoise, GridTable
from smoothheads.types import Grid

__all__ = ["GaussianNoise", "GridNoise", "GridTable", "Noise", "keyed_uniform", "make_noise"]


def make_noise(name: str, sigma: float, grid: Grid, seed: int, block_size: int) -> Noise:
    """For GridNoise this builds the table (about 0.1 s), so make it once per run, not once per image."""
    if name == "gaussian":
        return GaussianNoise(sigma, grid, seed, block_size)
    if name == "grid":
        return GridNoise(GridTable.build(sigma, grid), seed, block_size)
    raise one_of("noise", name, ["gaussian", "grid"])
