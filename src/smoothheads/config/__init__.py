"""Typed settings of every stage. Nothing heavy is imported here."""

from smoothheads.config.codec import digest, from_dict, load_json, to_dict
from smoothheads.config.methods import Gaussian, Method
from smoothheads.config.stages import (
    CertifyConfig,
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
    "CertifyConfig",
    "DataConfig",
    "DiversityConfig",
    "Gaussian",
    "Method",
    "ModelConfig",
    "ObjectiveConfig",
    "RunConfig",
    "SubsetConfig",
    "TeachingConfig",
    "TrainConfig",
    "digest",
    "from_dict",
    "load_json",
    "to_dict",
]
