"""The configurations that a study stands for. Nothing heavy is imported here."""

from __future__ import annotations

from smoothheads import cookbook
from smoothheads.certify.config import CertifyConfig
from smoothheads.config import from_dict, to_dict
from smoothheads.cookbook.changes import merge
from smoothheads.studies.spec import Arm, Study
from smoothheads.training import RunConfig


def run_config(study: Study, arm: Arm, setting: str, sigma: float, seed: int) -> RunConfig:
    """What one training of an arm is told: the recipe, the arm's changes, the setting's, sigma and seed."""
    recipe = cookbook.get(arm.recipe.replace("{sigma}", f"{sigma:.2f}")).config
    changes = merge(arm.changes, study.settings[setting])
    fixed = {"train": {"sigma": sigma, "seed": seed, "threads": 1}}
    return from_dict(RunConfig, merge(merge(to_dict(recipe), changes), fixed))


def certify_config(study: Study, sigma: float, rule: str = "ensemble") -> CertifyConfig:
    return from_dict(CertifyConfig, {"seed": 0, **study.certify, "sigma": sigma, "rule": rule})
