"""How long a study will take here, by trials of a few steps each; what is done counts as measured."""

from __future__ import annotations

from smoothheads.config import digest, to_dict
from smoothheads.studies import stages
from smoothheads.studies.plan import Joining, Network, StudyPlan, Training
from smoothheads.studies.store import StudyStore
from smoothheads.training import RunConfig

START_SECONDS = 1.0
"""Reading data and weights."""


def estimate(plan: StudyPlan, store: StudyStore, images: int) -> dict[str, float]:
    """Seconds of one thread for every item that is not there yet, by key."""
    trials = _Trials()
    seconds = {}
    for item in plan.items:
        if store.facts(item) is not None:
            seconds[item.key] = 0.0
        elif isinstance(item, Training):
            seconds[item.key] = START_SECONDS + trials.training(item.config)
        elif isinstance(item, Joining):
            seconds[item.key] = START_SECONDS
        else:
            samples = images * item.config.budget.typical_samples
            seconds[item.key] = START_SECONDS + samples * trials.per_sample(item.network)
    return seconds


class _Trials:
    """Each kind of network is tried once."""

    def __init__(self) -> None:
        self._epoch: dict[str, float] = {}
        self._sample: dict[str, float] = {}

    def training(self, config: RunConfig) -> float:
        epochs = config.train.epochs
        parts = config.data, config.model, config.objective.method
        key = digest([*map(to_dict, parts), config.train.batch])
        if key not in self._epoch:
            self._epoch[key] = stages.training_seconds(config) / epochs
        return epochs * self._epoch[key]

    def per_sample(self, network: Network) -> float:
        members = len(network.parts)
        config = network.members[0].config if isinstance(network, Joining) else network.config
        key = digest(to_dict(config.model))
        if key not in self._sample:
            self._sample[key] = stages.seconds_per_sample(config)
        return members * self._sample[key]
