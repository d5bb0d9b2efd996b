"""The plan of a study: networks to train or to join, ledgers to write, and where each row's votes are.

Networks and ledgers are named by a hash of everything they are made from, so that no study makes one twice.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, TypeAlias

from smoothheads.certify.config import CertifyConfig
from smoothheads.config import to_dict
from smoothheads.data import DataConfig
from smoothheads.models import ModelConfig
from smoothheads.studies.spec import MEMBER_SEEDS, Arm, Images, Study, certify_config
from smoothheads.training import RunConfig
from smoothheads.types import ENSEMBLE

Fingerprint = Callable[[DataConfig], str]
"""Returns the fingerprint of the images that a run trains on."""
Votes: TypeAlias = tuple[str, str]
"""Key of the certification and aggregation: two rows with the same votes are the same measurement."""


@dataclass(frozen=True, slots=True)
class Training:
    """A network to train, from scratch or from the weights of another one."""

    folder: ClassVar = "trained"
    product: ClassVar = "run"

    key: str
    config: RunConfig
    start: Network | None = None

    @property
    def needs(self) -> tuple[Network, ...]:
        return () if self.start is None else (self.start,)

    @property
    def members(self) -> tuple[Training, ...]:
        return (self,)

    @property
    def model(self) -> ModelConfig:
        return self.config.model

    @property
    def data(self) -> DataConfig:
        return self.config.data


@dataclass(frozen=True, slots=True)
class Joining:
    """Networks that are trained separately and become one ensemble."""

    folder: ClassVar = "joined"
    product: ClassVar = "checkpoint"

    key: str
    members: tuple[Training, ...]

    @property
    def needs(self) -> tuple[Training, ...]:
        return self.members

    @property
    def model(self) -> ModelConfig:
        """The joined model, whose heads are the members and share nothing."""
        member = self.members[0].model
        return replace(member, heads=member.heads * len(self.members), cut="input")

    @property
    def data(self) -> DataConfig:
        return self.members[0].data


Network: TypeAlias = Training | Joining


@dataclass(frozen=True, slots=True)
class Certification:
    """A ledger to write: a network, certified on the images of the study."""

    folder: ClassVar = "certified"
    product: ClassVar = "ledger"

    key: str
    network: Network
    config: CertifyConfig
    images: Images

    @property
    def needs(self) -> tuple[Network, ...]:
        return (self.network,)


Item: TypeAlias = Training | Joining | Certification


@dataclass(frozen=True, slots=True)
class RowName:
    """The setting, sigma, arm and seed of a row."""

    setting: str
    sigma: float
    arm: str
    seed: int

    @property
    def name(self) -> str:
        return "/".join(filter(None, (self.setting, f"{self.sigma:.2f}", self.arm, str(self.seed))))

    @property
    def cell(self) -> tuple[str, float, str]:
        """Setting, sigma and arm, which the rows of all seeds have in common."""
        return self.setting, self.sigma, self.arm


@dataclass(frozen=True, slots=True)
class PlannedRow(RowName):
    """A row of the study, and the ledger and aggregation that have its votes."""

    network: Network
    own: Certification
    """The certification that the row would have if it shared nothing."""
    certification: Certification
    aggregation: str

    @property
    def votes(self) -> Votes:
        return self.certification.key, self.aggregation

    @property
    def model(self) -> ModelConfig:
        """The network that the row is about: only the heads that its own aggregation evaluates."""
        kind, _, count = self.own.config.aggregation.partition("-")
        if kind not in ("head", "prefix") or not count.isdigit():  # other aggregations may have such names
            return self.network.model
        return replace(self.network.model, heads=1 if kind == "head" else int(count))


@dataclass(frozen=True)
class StudyPlan:
    """The rows of a study with everything that they need."""

    study: Study
    rows: tuple[PlannedRow, ...]
    images: int = 0
    """How many images are certified for every row."""

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """Everything that has to be made, each item once and after what it needs."""
        found: dict[str, Item] = {}
        for row in self.rows:
            for item in with_needed(row.certification):
                found.setdefault(item.key, item)
        return tuple(found.values())

    @property
    def votes_by_name(self) -> dict[str, Votes]:
        return {row.name: row.votes for row in self.rows}

    def longest_first(self, work: Mapping[str, float]) -> StudyPlan:
        """Returns the same rows, those of each seed with the most work first: no core then waits for a row
        that began last."""
        rounds = list(dict.fromkeys(row.seed for row in self.rows))

        def order(row: PlannedRow) -> tuple[int, float]:
            total = sum(work.get(item.key, 0.0) for item in with_needed(row.certification))
            return rounds.index(row.seed), -total

        return replace(self, rows=tuple(sorted(self.rows, key=order)))

    def without(self, votes: Container[Votes]) -> StudyPlan:
        """Returns the plan without rows that are certified already."""
        return replace(self, rows=tuple(row for row in self.rows if row.votes not in votes))


def make_plan(study: Study, fingerprint: Fingerprint, certified: str, images: int = 0) -> StudyPlan:
    """Plans a study, seed by seed: a run that is stopped leaves whole rounds of all arms."""

    def train(config: RunConfig, start: Network | None) -> Training:
        settings = to_dict(config)
        # The place of the data does not count, their fingerprint does.
        data = {name: value for name, value in settings["data"].items() if name != "root"}
        settings |= {"data": data, "init": start.key if start else None}
        return Training(_key("training", settings, fingerprint(config.data)), config, start)

    def network(setting: str, sigma: float, arm: Arm, seed: int) -> Network:
        # All members of an ensemble start from the same network, if the arm starts from another one.
        start = None if arm.start is None else network(setting, sigma, study.arm(arm.start), seed)
        seeds = [seed + MEMBER_SEEDS * k for k in range(arm.members)]
        members = tuple(train(study.run_config(arm, setting, sigma, s), start) for s in seeds)
        if len(members) == 1:
            return members[0]
        return Joining(_key("joining", [member.key for member in members]), members)

    def row(setting: str, sigma: float, arm: Arm, seed: int) -> PlannedRow:
        certifies = network(setting, sigma, arm, seed)
        config = certify_config(study.certify, sigma, arm.aggregation)
        key = _key("certification", certifies.key, to_dict(config), certified)
        own = Certification(key, certifies, config, study.images)
        return PlannedRow(setting, sigma, arm.name, seed, certifies, own, own, arm.aggregation)

    rows = [
        row(setting, sigma, arm, seed)
        for seed in study.seeds
        for setting in study.settings
        for sigma in study.sigmas
        for arm in study.arms
        if sigma in (arm.sigmas or study.sigmas)
    ]
    return StudyPlan(study, tuple(_share_ledgers(rows)), images)


def join_plans(plans: Mapping[str, StudyPlan]) -> tuple[StudyPlan, dict[str, StudyPlan]]:
    """Returns several plans as one, and each plan with the ledgers that it now shares with the others."""
    shared = iter(list(_share_ledgers([row for plan in plans.values() for row in plan.rows])))
    parts = {name: replace(plan, rows=tuple(next(shared) for _ in plan.rows)) for name, plan in plans.items()}
    first = next(iter(plans.values())).study
    study = first if len(plans) == 1 else replace(first, name="-".join(plans), title=", ".join(plans))
    rows = tuple(row for plan in parts.values() for row in plan.rows)
    return StudyPlan(study, rows, max(plan.images for plan in plans.values())), parts


def _share_ledgers(rows: list[PlannedRow]) -> Iterator[PlannedRow]:
    """Reads a row from the ledger of another row where that has its votes on the same noise: another
    aggregation of the same network, or a network that is the beginning of an ensemble.

    This needs the same number of samples for every image and a bound that depends on the votes of one class
    alone (budget fixed, Clopper-Pearson); then all rows are certified alike.
    """
    for row in rows:
        found = [(other, name) for other in rows if (name := _aggregation_in(row, other)) is not None]
        if not found:
            yield row
            continue
        # The largest ensemble has the votes of all that begin like it.
        other, aggregation = max(found, key=lambda each: len(each[0].network.members))
        yield replace(row, certification=other.own, aggregation=aggregation)


def _aggregation_in(row: PlannedRow, other: PlannedRow) -> str | None:
    """Returns the aggregation under which the ledger of `other` holds `row`, if it does."""
    config, aggregation = row.own.config, row.own.config.aggregation
    same_settings = replace(config, aggregation=ENSEMBLE) == other.own.config
    if config.budget != "fixed" or not same_settings or row.own.images != other.own.images:
        return None
    # The same network: its ledger has the votes of every aggregation.
    if row.network.key == other.network.key:
        return aggregation if aggregation != ENSEMBLE else None
    # The first members of a larger ensemble. prefix-K counts heads, not networks, so each must have one head.
    parts = [member.key for member in row.network.members]
    longer = [member.key for member in other.network.members]
    one_head_each = row.network.model.heads == len(parts)
    begins = len(parts) < len(longer) and longer[: len(parts)] == parts
    if aggregation != ENSEMBLE or not one_head_each or not begins:
        return None
    return "head-1" if len(parts) == 1 else f"prefix-{len(parts)}"


def with_needed(item: Item) -> Iterator[Item]:
    """Yields an item after everything that it needs."""
    for needed in item.needs:
        yield from with_needed(needed)
    yield item


def _key(kind: str, *parts: Any) -> str:
    return hashlib.sha256(json.dumps([kind, *parts], sort_keys=True).encode()).hexdigest()[:20]
