"""Keyed certification noise: exact on the grid of the images, or float noise as the literature has it."""

from smoothheads.errors import one_of
from smoothheads.noise.base import Noise, keyed_uniform
from smoothheads.noise.gaussian import GaussianNoise
from smoothheads.noise.grid import GridNoise, GridTable
from smoothheads.noise.l1 import LaplaceNoise, UniformNoise
from smoothheads.types import Grid

__all__ = [
    "GaussianNoise",
    "GridNoise",
    "GridTable",
    "LaplaceNoise",
    "Noise",
    "UniformNoise",
    "keyed_uniform",
    "make_noise",
]

_FLOATS = {kind.name: kind for kind in (GaussianNoise, UniformNoise, LaplaceNoise)}


def make_noise(name: str, sigma: float, grid: Grid, seed: int, block_size: int) -> Noise:
    """For GridNoise this builds the table (about 0.1 s), so make it once per run, not once per image."""
    if name == "grid":
        return GridNoise(GridTable.build(sigma, grid), seed, block_size)
    if name not in _FLOATS:
        raise one_of("noise", name, ["grid", *_FLOATS])
    return _FLOATS[name](sigma, grid, seed, block_size)
