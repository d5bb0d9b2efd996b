"""Training objectives: a base method's per-sample losses, teaching weights, and the cosine constraint.

Importing this package registers our methods; none of these modules imports torch before it computes.
"""

from smoothheads.objectives.acr_targeted import AcrTargeted
from smoothheads.objectives.catrs import CatRs
from smoothheads.objectives.config import DiversityConfig, ObjectiveConfig, TeachingConfig
from smoothheads.objectives.consistency import Consistency
from smoothheads.objectives.denoise import Denoise
from smoothheads.objectives.drt import Drt
from smoothheads.objectives.gaussian import Gaussian
from smoothheads.objectives.macer import Macer
from smoothheads.objectives.method import METHODS, Curriculum, Losses, Method, Preparation, Step
from smoothheads.objectives.smoothadv import SmoothAdv
from smoothheads.objectives.smoothmix import SmoothMix
from smoothheads.objectives.stability import Stability

__all__ = [
    "METHODS",
    "AcrTargeted",
    "CatRs",
    "Consistency",
    "Curriculum",
    "Denoise",
    "DiversityConfig",
    "Drt",
    "Gaussian",
    "Losses",
    "Macer",
    "Method",
    "ObjectiveConfig",
    "Preparation",
    "SmoothAdv",
    "SmoothMix",
    "Stability",
    "Step",
    "TeachingConfig",
]
