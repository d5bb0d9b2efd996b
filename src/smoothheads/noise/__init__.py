"""Certification noise: laws with their theorems, and keyed samples, exact on the grid or in float32."""

from smoothheads.noise.base import NOISES as NOISES
from smoothheads.noise.base import FloatLaw as FloatLaw
from smoothheads.noise.base import Noise as Noise
from smoothheads.noise.base import NoiseLaw as NoiseLaw
from smoothheads.noise.grid import GridNoise as GridNoise
from smoothheads.noise.grid import GridTable as GridTable
from smoothheads.noise.laws import FloatGaussian as FloatGaussian
from smoothheads.noise.laws import GridGaussian as GridGaussian
from smoothheads.noise.laws import Laplace as Laplace
from smoothheads.noise.laws import Uniform as Uniform
