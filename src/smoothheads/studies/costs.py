"""How long a study will take here, by trials of a few steps each; what is done counts as measured."""

from __future__ import annotations

from dataclasses import replace

from smoothheads.config import digest, to_dict
from smoothheads.studies import stages
from smoothheads.studies.plan import Certification, Joining, Network, StudyPlan, Training
from smoothheads.studies.store import StudyStore
from smoothheads.training import RunConfig

START_SECONDS = 1.0
"""Reading data and weights."""
SPENT = {"fixed": 1.0, "anytime": 1.0, "table": 0.1, "radius": 0.1}
"""Share of n that a budget spends on average, roughly (docs/budgets.md)."""


def estimate(plan: StudyPlan, store: StudyStore, images: int) -> dict[str, float]:
    """Seconds of one thread for every item that is not there yet, by key."""
    trials = _Trials()
    found = {}
    for item in plan.items:
        if store.facts(item) is not None:
            found[item.key] = 0.0
        elif isinstance(item, Training):
            found[item.key] = START_SECONDS + trials.training(item.config)
        elif isinstance(item, Joining):
            found[item.key] = START_SECONDS
        else:
            found[item.key] = START_SECONDS + images * _samples(item) * trials.per_sample(item.network)
    return found


class _Trials:
    """Each kind of network is tried once."""

    def __init__(self) -> None:
        self._epoch: dict[str, float] = {}
        self._sample: dict[str, float] = {}

    def training(self, config: RunConfig) -> float:
        epochs = config.train.epochs
        alike = replace(config, train=replace(config.train, epochs=1, seed=0, lr=0.1, sigma=0.25))
        key = digest(
            [to_dict(alike.data), to_dict(alike.model), to_dict(alike.objective.method), alike.train.batch]
        )
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


def _samples(item: Certification) -> float:
    told = to_dict(item.config)
    budget = told["budget"]
    fields = budget if isinstance(budget, dict) else told | {"name": budget}
    return float(fields.get("n0", 100) + fields["n"] * SPENT.get(fields["name"], 1.0))
