"""Training: one loop for every method and every number of heads."""

from typing import TYPE_CHECKING

from smoothheads import lazy

if TYPE_CHECKING:
    from smoothheads.training.config import RunConfig as RunConfig
    from smoothheads.training.config import TrainConfig as TrainConfig
    from smoothheads.training.fit import Trained as Trained
    from smoothheads.training.fit import train as train
    from smoothheads.training.loop import EpochDone as EpochDone
    from smoothheads.training.loop import StepDone as StepDone
    from smoothheads.training.loop import Trainer as Trainer
    from smoothheads.training.loop import TrainState as TrainState
    from smoothheads.training.plan import Plan as Plan
    from smoothheads.training.plan import make_plan as make_plan

__getattr__ = lazy.attributes(
    __name__,
    {
        "config": "RunConfig TrainConfig",
        "fit": "Trained train",
        "loop": "EpochDone StepDone Trainer TrainState",
        "plan": "Plan make_plan",
    },
)
