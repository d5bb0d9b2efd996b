"""Typed settings of every stage. Nothing heavy is imported here."""

from smoothheads.config.certification import CertifyConfig
from smoothheads.config.codec import digest, from_dict, load_json, to_dict
from smoothheads.config.methods import (
    METHODS,
    AcrTargeted,
    AttackTarget,
    CatRs,
    Consistency,
    Drt,
    Gaussian,
    Macer,
    Method,
    SmoothAdv,
    SmoothMix,
    Stability,
)
from smoothheads.config.stages import (
    DataConfig,
    DiversityConfig,
    ModelConfig,
    ObjectiveConfig,
    RunConfig,
    SubsetConfig,
    TeachingConfig,
    TrainConfig,
)

__all__ = [
    "METHODS",
    "AcrTargeted",
    "AttackTarget",
    "CatRs",
    "CertifyConfig",
    "Consistency",
    "DataConfig",
    "DiversityConfig",
    "Drt",
    "Gaussian",
    "Macer",
    "Method",
    "ModelConfig",
    "ObjectiveConfig",
    "RunConfig",
    "SmoothAdv",
    "SmoothMix",
    "Stability",
    "SubsetConfig",
    "TeachingConfig",
    "TrainConfig",
    "digest",
    "from_dict",
    "load_json",
    "to_dict",
]
