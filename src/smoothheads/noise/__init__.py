"""Certification noise: laws with their theorems, and keyed samples, exact on the grid or in float32."""

from typing import TYPE_CHECKING

from smoothheads import lazy

if TYPE_CHECKING:
    from smoothheads.noise.base import Noise as Noise
    from smoothheads.noise.base import keyed_uniform as keyed_uniform
    from smoothheads.noise.base import make_noise as make_noise
    from smoothheads.noise.grid import GridNoise as GridNoise
    from smoothheads.noise.grid import GridTable as GridTable
    from smoothheads.noise.law import NOISES as NOISES
    from smoothheads.noise.law import FloatLaw as FloatLaw
    from smoothheads.noise.law import NoiseLaw as NoiseLaw
    from smoothheads.noise.laws import FloatGaussian as FloatGaussian
    from smoothheads.noise.laws import GridGaussian as GridGaussian
    from smoothheads.noise.laws import Laplace as Laplace
    from smoothheads.noise.laws import Uniform as Uniform

__getattr__ = lazy.attributes(
    __name__,
    {
        "base": "Noise keyed_uniform make_noise",
        "grid": "GridNoise GridTable",
        "law": "NOISES FloatLaw NoiseLaw",
        "laws": "FloatGaussian GridGaussian Laplace Uniform",
    },
)
