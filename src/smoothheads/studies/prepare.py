"""Everything that can be refused is refused before anything starts."""

from __future__ import annotations

from smoothheads.data import DataConfig
from smoothheads.errors import DataError
from smoothheads.studies import stages
from smoothheads.studies.configs import run_config
from smoothheads.studies.plan import StudyPlan, make_plan
from smoothheads.studies.spec import Study


def prepare(study: Study) -> tuple[StudyPlan, int]:
    """The plan and how many images are certified; raises where data are missing, or differ between arms."""
    found = {}
    for data, name in _data(study).items():
        stages.require_unseen(data, study.images)
        images = stages.certified_images(data, study.images)
        found[images.fingerprint] = name, images
    if len(found) > 1:
        (first, _), (second, _) = list(found.values())[:2]
        raise DataError(
            f"the same certified images for all arms, as of {first}",
            f"others for {second}",
            "give all one data set",
        )
    ((fingerprint, (_, images)),) = found.items()
    return make_plan(study, stages.training_fingerprint, fingerprint), len(images)


def _data(study: Study) -> dict[DataConfig, str]:
    """Every data set of the study, and which arm has it."""
    return {
        run_config(study, arm, setting, study.sigmas[0], study.seeds[0]).data: (
            f"arm {arm.name}" + (f" in {setting}" if setting else "")
        )
        for arm in study.arms
        for setting in study.settings
    }
