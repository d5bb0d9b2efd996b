"""Training objectives: a base method's per-sample losses, teaching weights, and the cosine constraint.

Importing this package registers our methods; none of these modules imports torch before it computes.
"""

from smoothheads.objectives.acr_targeted import AcrTargeted as AcrTargeted
from smoothheads.objectives.catrs import CatRs as CatRs
from smoothheads.objectives.config import DiversityConfig as DiversityConfig
from smoothheads.objectives.config import ObjectiveConfig as ObjectiveConfig
from smoothheads.objectives.config import TeachingConfig as TeachingConfig
from smoothheads.objectives.consistency import Consistency as Consistency
from smoothheads.objectives.denoise import Denoise as Denoise
from smoothheads.objectives.drt import Drt as Drt
from smoothheads.objectives.gaussian import Gaussian as Gaussian
from smoothheads.objectives.macer import Macer as Macer
from smoothheads.objectives.method import METHODS as METHODS
from smoothheads.objectives.method import Curriculum as Curriculum
from smoothheads.objectives.method import Losses as Losses
from smoothheads.objectives.method import Method as Method
from smoothheads.objectives.method import Preparation as Preparation
from smoothheads.objectives.method import Step as Step
from smoothheads.objectives.smoothadv import SmoothAdv as SmoothAdv
from smoothheads.objectives.smoothmix import SmoothMix as SmoothMix
from smoothheads.objectives.stability import Stability as Stability
