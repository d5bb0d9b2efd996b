"""What a study is: arms crossed with settings, sigmas and seeds, certified alike and shown together."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from smoothheads import recipes
from smoothheads.certify.config import CertifyConfig
from smoothheads.config import from_dict, merge, to_dict
from smoothheads.config.check import Count, Natural, check_fields
from smoothheads.errors import ConfigError, one_of
from smoothheads.training import RunConfig

Changes = Mapping[str, Any]
"""Nested tables of configuration fields, as in `{"train": {"epochs": 50}}`."""
MEMBER_SEEDS = 1000
"""Member k of an ensemble of seed s has seed s + 1000 k: ensembles of different seeds share no member."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One thing to compare: a recipe with changes, trained once for every setting, sigma and seed."""

    name: str
    recipe: str
    """The name of a recipe, which is called with the sigma of the row and these arguments."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of the recipe, such as the method or the number of heads."""
    members: Count = 1
    """Trainings with as many seeds whose networks are joined into one ensemble."""
    aggregation: str = "ensemble"
    """Which base classifier is certified, e.g. head-1 or prefix-3."""
    start: str | None = None
    """The arm whose networks this one's training begins with."""
    changes: Changes = field(default_factory=dict)
    sigmas: tuple[float, ...] = ()
    """Where it is run; empty: at all sigmas of the study."""
    label: str | None = None
    """How tables and figures name it; none: by its name."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def title(self) -> str:
        return self.label or self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    """Which images are certified, all arms the same."""

    split: Literal["test", "train"] = "test"
    """train: images that no arm trains on, to choose settings without looking at the test images."""
    offset: Natural = 0
    """Begin at this image."""
    every: Count = 1
    """Then keep every k-th."""
    first: Count | None = None
    """Then keep at most this many."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Show:
    """What the tables hold."""

    radii: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75)
    differences: tuple[tuple[str, str], ...] = ()
    """Pairs of arms (this, baseline); empty: every arm against the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    name: str
    title: str
    arms: tuple[Arm, ...]
    sigmas: tuple[float, ...]
    seeds: tuple[int, ...] = (0,)
    settings: Mapping[str, Changes] = field(default_factory=lambda: {"": {}})
    """Changes of all arms alike; every arm is run in every setting."""
    certify: Changes = field(default_factory=dict)
    """Fields of a certification, sigma apart."""
    images: Images = field(default_factory=Images)
    show: Show = field(default_factory=Show)

    def __post_init__(self) -> None:
        for what, given in (("arm", self.arms), ("sigma", self.sigmas), ("seed", self.seeds)):
            if not given:
                raise ConfigError(f"at least one {what} in {self.name}", "none", f"add a {what}")
        for what, values in (("sigmas", self.sigmas), ("seeds", self.seeds)):
            if len(set(values)) < len(values):
                raise ConfigError(f"different {what} in {self.name}", "one of them twice", "drop it")
        for arm in self.arms:
            _check_arm(arm, self)
        _refuse_fixed(self.certify, ("sigma", "aggregation"), "certify")
        names = [arm.name for arm in self.arms]
        wanted = [name for pair in self.show.differences for name in pair]
        wanted += [arm.start for arm in self.arms if arm.start is not None]
        for name in wanted:
            if name not in names:
                raise one_of(f"arm of {self.name}", name, names)

    def at(self, root: str | None) -> Study:
        """The same study with its data at `root`, if one is given."""
        if root is None:
            return self
        arms = [replace(arm, changes=merge(arm.changes, {"data": {"root": root}})) for arm in self.arms]
        return replace(self, arms=tuple(arms))

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def run_config(self, arm: Arm, setting: str, sigma: float, seed: int) -> RunConfig:
        """What one training of an arm is told: recipe, changes of arm and setting, sigma and seed. Precision
        `auto` is float32 here: two rows would else differ by the machines that trained them."""
        recipe = recipes.get(arm.recipe, **{"sigma": sigma} | arm.arguments)
        changes = merge(arm.changes, self.settings[setting])
        fixed = {"train": {"sigma": sigma, "seed": seed, "threads": 1}}
        told = merge(merge(to_dict(recipe), changes), fixed)
        if told["train"]["precision"] == "auto":
            told["train"]["precision"] = "float32"
        return from_dict(RunConfig, told)

    def certify_config(self, sigma: float, aggregation: str = "ensemble") -> CertifyConfig:
        """Raises ConfigError where a trial would choose the engine anew for every row: all are alike."""
        config = certify_config(self.certify, sigma, aggregation)
        if config.engine.undecided:
            got = "a setting 'auto', which a trial decides anew for each"
            raise ConfigError("one engine for all rows of a study", got, "name it: openvino or torch")
        return config

    @property
    def differences(self) -> tuple[tuple[str, str], ...]:
        first = self.arms[0].name
        return self.show.differences or tuple((arm.name, first) for arm in self.arms[1:])


def _check_arm(arm: Arm, study: Study) -> None:
    if others := [sigma for sigma in arm.sigmas if sigma not in study.sigmas]:
        expected = f"sigmas of the study at arms.{arm.name}.sigmas"
        raise ConfigError(expected, f"{others[0]:g}", "add it to the study's, or drop it")
    if [each.title for each in study.arms].count(arm.title) > 1:
        raise ConfigError("different labels of all arms", f"{arm.title!r} twice", "rename one")
    for changes in (arm.changes, *study.settings.values()):
        _refuse_fixed(changes.get("train", {}), ("sigma", "seed", "threads"), "train")
    for a, b in itertools.combinations(sorted(study.seeds), 2):
        apart, rest = divmod(b - a, MEMBER_SEEDS)
        if rest == 0 and apart < arm.members:
            got = f"{a} and {b}: member k of seed s has seed s + {MEMBER_SEEDS} k"
            raise ConfigError(f"seeds of which no two share a member of {arm.name}", got, "take 0, 1, 2, ...")
    starts, seen = {each.name: each.start for each in study.arms}, [arm.name]
    while (start := starts.get(seen[-1])) is not None:
        if start in seen:
            got = " from ".join([*seen, start])
            raise ConfigError("arms that start from a network, not from each other", got, "break the circle")
        seen.append(start)


def _refuse_fixed(changes: Any, names: Sequence[str], where: str) -> None:
    """What a study sets itself; said again, it would be ignored."""
    for name in names:
        if isinstance(changes, Mapping) and name in changes:
            remedy = "sigmas and seeds are the study's, aggregations the arms', and every job has one thread"
            raise ConfigError(f"no {name} of its own at {where}.{name}", str(changes[name]), remedy)


def certify_config(told: Changes, sigma: float, aggregation: str = "ensemble") -> CertifyConfig:
    """What a study tells a certification, with the noise of seed 0 unless it says another."""
    return from_dict(CertifyConfig, {"seed": 0, **told, "sigma": sigma, "aggregation": aggregation})
