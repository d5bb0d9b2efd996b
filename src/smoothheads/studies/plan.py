"""What a study needs: which networks to train or to join, which ledgers to write, and where each row is.

Networks and ledgers are named by what they were made from, so that no study makes one twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

from smoothheads.certify.config import CertifyConfig
from smoothheads.config import to_dict
from smoothheads.data import DataConfig
from smoothheads.models import ModelConfig
from smoothheads.studies.spec import MEMBER_SEEDS, Arm, Images, Study
from smoothheads.training import RunConfig
from smoothheads.types import ENSEMBLE

Fingerprint = Callable[[DataConfig], str]
"""Of the images that a run trains on."""


@dataclass(frozen=True, slots=True)
class Training:
    """A network to train, from scratch or from another one."""

    key: str
    config: RunConfig
    start: Network | None = None

    @property
    def parts(self) -> tuple[str, ...]:
        return (self.key,)

    @property
    def model(self) -> ModelConfig:
        return self.config.model

    @property
    def data(self) -> DataConfig:
        """Where it is now; the network may have been trained where that was another place."""
        return self.config.data


@dataclass(frozen=True, slots=True)
class Joining:
    """Networks trained apart that become one ensemble."""

    key: str
    members: tuple[Training, ...]

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(member.key for member in self.members)

    @property
    def model(self) -> ModelConfig:
        """As it is certified: its members are heads that share nothing."""
        member = self.members[0].model
        return replace(member, heads=member.heads * len(self.members), cut="input")

    @property
    def data(self) -> DataConfig:
        return self.members[0].data


Network: TypeAlias = Training | Joining


@dataclass(frozen=True, slots=True)
class Certification:
    key: str
    network: Network
    config: CertifyConfig
    images: Images


Item: TypeAlias = Training | Joining | Certification


@dataclass(frozen=True, slots=True)
class RowName:
    setting: str
    sigma: float
    arm: str
    seed: int

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.setting, f"{self.sigma:.2f}", self.arm, str(self.seed))))

    @property
    def cell(self) -> tuple[str, float, str]:
        """What all its seeds have in common."""
        return self.setting, self.sigma, self.arm


@dataclass(frozen=True, slots=True)
class Row(RowName):
    """One certified network of the study, and the aggregation of the ledger in which it stands."""

    network: Network
    own: Certification
    """What the row would have if it shared nothing."""
    certification: Certification
    """Where its votes are."""
    aggregation: str

    @property
    def votes(self) -> tuple[str, str]:
        """The ledger and the aggregation: two rows with the same are the same measurement."""
        return self.certification.key, self.aggregation

    @property
    def model(self) -> ModelConfig:
        """The network that the row is about, with the heads that its own aggregation asks."""
        kind, _, count = self.own.config.aggregation.partition("-")
        if kind not in ("head", "prefix") or not count.isdigit():  # others' aggregations may have such names
            return self.network.model
        return replace(self.network.model, heads=1 if kind == "head" else int(count))


@dataclass(frozen=True)
class StudyPlan:
    study: Study
    rows: tuple[Row, ...]

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """Everything that has to be made, each once, and nothing before what it needs."""
        found: dict[str, Item] = {}
        for row in self.rows:
            for item in _needed(row.certification):
                found.setdefault(item.key, item)
        return tuple(found.values())

    @property
    def votes_by_name(self) -> dict[str, tuple[str, str]]:
        return {row.name: row.votes for row in self.rows}

    @property
    def votes(self) -> set[tuple[str, str]]:
        return {row.votes for row in self.rows}

    def longest_first(self, costs: Mapping[str, float]) -> StudyPlan:
        """The same rows, of each seed the dearest first, so that no core waits for one that began last."""
        rounds = list(dict.fromkeys(row.seed for row in self.rows))

        def turn(row: Row) -> tuple[int, float]:
            seconds = sum(costs.get(item.key, 0.0) for item in _needed(row.certification))
            return rounds.index(row.seed), -seconds

        return replace(self, rows=tuple(sorted(self.rows, key=turn)))

    def without(self, votes: Container[tuple[str, str]]) -> StudyPlan:
        """What is left to do when these rows are there already, wherever."""
        return replace(self, rows=tuple(row for row in self.rows if row.votes not in votes))


def make_plan(study: Study, fingerprint: Fingerprint, images: str) -> StudyPlan:
    """`images` is the fingerprint of the certified ones. Seeds come last: one whole round after another."""
    maker = _Maker(study, fingerprint, images)
    rows = [
        maker.row(setting, sigma, arm, seed)
        for seed in study.seeds
        for setting in study.settings
        for sigma in study.sigmas
        for arm in study.arms
        if sigma in (arm.sigmas or study.sigmas)
    ]
    return StudyPlan(study, tuple(_shared(rows)))


def together(plans: Mapping[str, StudyPlan]) -> tuple[StudyPlan, dict[str, StudyPlan]]:
    """Several plans as one, and each again with what it now shares with the others."""
    rows = [row for plan in plans.values() for row in plan.rows]
    shared = list(_shared(rows))
    first = next(iter(plans.values())).study
    study = first if len(plans) == 1 else replace(first, name="-".join(plans), title=", ".join(plans))
    whole = StudyPlan(study, tuple(shared))
    parts = {}
    for name, plan in plans.items():
        parts[name] = replace(plan, rows=tuple(shared[: len(plan.rows)]))
        shared = shared[len(plan.rows) :]
    return whole, parts


def needs(item: Item) -> tuple[Item, ...]:
    """What must exist before an item can be made."""
    match item:
        case Training(start=start):
            return (start,) if start is not None else ()
        case Joining(members=members):
            return members
        case Certification(network=network):
            return (network,)


@dataclass(frozen=True)
class _Maker:
    study: Study
    fingerprint: Fingerprint
    images: str
    known: dict[str, Training] = field(default_factory=dict)

    def row(self, setting: str, sigma: float, arm: Arm, seed: int) -> Row:
        network = self.network(setting, sigma, arm, seed)
        config = self.study.certify_config(sigma, arm.aggregation)
        key = _digest("certification", network.key, to_dict(config), self.images)
        certification = Certification(key, network, config, self.study.images)
        return Row(setting, sigma, arm.name, seed, network, certification, certification, arm.aggregation)

    def network(self, setting: str, sigma: float, arm: Arm, seed: int) -> Network:
        seeds = [seed + MEMBER_SEEDS * k for k in range(arm.members)]
        start = None if arm.start is None else self.network(setting, sigma, self.study.arm(arm.start), seed)
        members = tuple(self.training(self.study.run_config(arm, setting, sigma, s), start) for s in seeds)
        if len(members) == 1:
            return members[0]
        return Joining(_digest("joining", [member.key for member in members]), members)

    def training(self, config: RunConfig, start: Network | None) -> Training:
        told = to_dict(config)
        data = {name: value for name, value in told["data"].items() if name != "root"}
        told = told | {"data": data, "init": start.key if start else None}
        key = _digest("training", told, self.fingerprint(config.data))
        return self.known.setdefault(key, Training(key, config, start))


def _shared(rows: list[Row]) -> Iterator[Row]:
    """Rows whose votes stand in another row's ledger, on the same noise, are read from there: another
    aggregation of the same network, or a network that is the beginning of an ensemble. Only where every image
    gets the same number of samples and the votes of one class tell the bound (budget fixed, Clopper-Pearson),
    so that all rows are certified alike."""
    for row in rows:
        found = [
            (other, aggregation) for other in rows if (aggregation := _aggregation_in(row, other)) is not None
        ]
        budget = row.own.config.budget
        if not found or budget.name != "fixed" or not budget.choice_sizes:
            yield row
            continue
        other, aggregation = max(found, key=lambda each: len(each[0].network.parts))
        yield replace(row, certification=other.own, aggregation=aggregation)


def _aggregation_in(row: Row, other: Row) -> str | None:
    """The aggregation under which the ledger of `other` holds `row`, if it does."""
    aggregation = row.own.config.aggregation
    if (
        replace(row.own.config, aggregation=ENSEMBLE) != other.own.config
        or row.own.images != other.own.images
    ):
        return None
    if row.network.key == other.network.key:
        return aggregation if aggregation != ENSEMBLE else None
    parts, longer = row.network.parts, other.network.parts
    one_head = row.network.model.heads == len(parts)  # aggregations count heads, not networks
    begins = len(parts) < len(longer) and longer[: len(parts)] == parts
    if aggregation != ENSEMBLE or not one_head or not begins:
        return None
    return "head-1" if len(parts) == 1 else f"prefix-{len(parts)}"


def _needed(item: Item) -> Iterator[Item]:
    for before in needs(item):
        yield from _needed(before)
    yield item


def _digest(kind: str, *what: Any) -> str:
    return hashlib.sha256(json.dumps([kind, *what], sort_keys=True).encode()).hexdigest()[:20]
