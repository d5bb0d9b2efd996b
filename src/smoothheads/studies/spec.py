"""A study: arms crossed with settings, sigmas and seeds, certified alike; in Python or as a TOML file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from smoothheads import recipes
from smoothheads.certify.config import CertifyConfig
from smoothheads.config import from_dict, leaves, merge, to_dict
from smoothheads.config.check import Count, Natural, check_fields
from smoothheads.errors import ConfigError, SettingError, suggest
from smoothheads.training import RunConfig
from smoothheads.types import ENSEMBLE

Overrides = Mapping[str, Any]
"""Nested tables of configuration fields, as in `{"train": {"epochs": 50}}`."""
MEMBER_SEEDS = 1000
"""Member k of an ensemble of seed s has seed s + 1000 k, so that ensembles share no member."""
_STAGES = ("data", "model", "objective", "train")


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """One thing to compare: a recipe with overrides, trained once for every setting, sigma and seed."""

    name: str
    recipe: str
    """The name of a recipe, which is called with the sigma of the row and these arguments."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Arguments of the recipe, such as the method or the number of heads."""
    members: Count = 1
    """How many networks are trained, with as many seeds, and joined into one ensemble."""
    aggregation: str = ENSEMBLE
    """The base classifier that is certified, e.g. head-1 or prefix-3."""
    start: str | None = None
    """The arm above this one whose network its training starts from."""
    sigmas: tuple[float, ...] = ()
    """The sigmas at which the arm is run; empty: all sigmas of the study."""
    label: str | None = None
    """The arm's title in tables and figures (default: its name)."""
    data: dict[str, Any] = field(default_factory=dict)
    """Overrides of the recipe's fields; those of the other stages of a run follow."""
    model: dict[str, Any] = field(default_factory=dict)
    objective: dict[str, Any] = field(default_factory=dict)
    train: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def title(self) -> str:
        return self.label or self.name

    @property
    def overrides(self) -> Overrides:
        return {stage: getattr(self, stage) for stage in _STAGES}

    def with_overrides(self, *later: Overrides) -> Arm:
        """Returns the arm with further overrides, of which later ones win."""
        merged = self.overrides
        for overrides in later:
            merged = merge(merged, overrides)
        return replace(self, **merged)


@dataclass(frozen=True, kw_only=True, slots=True)
class Images:
    """The images that are certified, the same for all arms."""

    split: Literal["test", "train"] = "test"
    """train: images that no arm trains on, to choose settings without looking at the test images."""
    offset: Natural = 0
    """The first image."""
    every: Count = 1
    """Keep every k-th image from there on."""
    first: Count | None = None
    """Keep at most this many images."""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Show:
    """The columns and pairs of the tables."""

    radii: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75)
    differences: tuple[tuple[str, ...], ...] = ()
    """Pairs of arms (this, baseline); empty: every arm against the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """The arms to compare, and where and how they are trained and certified.

    Args:
        settings: Overrides of all arms alike, by name; every arm is run in every setting.
        certify: Fields of `CertifyConfig` without sigma and aggregation.
    """

    name: str
    title: str
    arms: tuple[Arm, ...]
    sigmas: tuple[float, ...]
    seeds: tuple[int, ...] = (0,)
    settings: Mapping[str, Overrides] = field(default_factory=lambda: {"": {}})
    certify: Overrides = field(default_factory=dict)
    images: Images = field(default_factory=Images)
    show: Show = field(default_factory=Show)

    def __post_init__(self) -> None:
        """Raises SettingError with the key of a study file at which something is wrong."""
        names = [arm.name for arm in self.arms]
        for key, values in (("arms", names), ("sigmas", self.sigmas), ("seeds", self.seeds)):
            if not values:
                raise SettingError(f"The study {self.name} has no {key}; give at least one.", key)
            if len(set(values)) < len(values):
                raise SettingError(f"The study {self.name} names one of its {key} twice; drop it.", key)
        if min(self.seeds) < 0:
            raise SettingError(f"Seeds are integers from 0 on, not {min(self.seeds)}.", "seeds")
        for pair in self.show.differences:
            unknown = [name for name in pair if name not in names]
            if unknown or len(pair) != 2:
                hint = f"; {suggest(unknown[0], names)}" if unknown else "."
                message = f"show.differences has pairs of arms [this, baseline], not {list(pair)}{hint}"
                raise SettingError(message, "show.differences")
        for i, arm in enumerate(self.arms):
            self._check_arm(arm, names[:i])

        # The study sets some fields itself; values in a file would be ignored.
        trains = {f"arms.{arm.name}.train": arm.train for arm in self.arms}
        trains |= {f"settings.{name}.train": each.get("train", {}) for name, each in self.settings.items()}
        fixed = [(key, train, ("sigma", "seed", "threads")) for key, train in trains.items()]
        for key, table, reserved in (*fixed, ("certify", self.certify, ("sigma", "aggregation"))):
            for name in reserved:
                if name in table:
                    raise SettingError(
                        f"Drop {key.rpartition('.')[2]}.{name}: sigmas and seeds belong to the study, "
                        "aggregations to its arms, and every job has one thread.",
                        f"{key}.{name}",
                    )

    def _check_arm(self, arm: Arm, above: Sequence[str]) -> None:
        key = f"arms.{arm.name}"
        if others := [sigma for sigma in arm.sigmas if sigma not in self.sigmas]:
            message = f"Arm {arm.name} has sigma {others[0]:g}, which the study does not have; add it there."
            raise SettingError(message, f"{key}.sigmas")
        if [each.title for each in self.arms].count(arm.title) > 1:
            raise SettingError(f"Two arms have the label {arm.title!r}; rename one of them.", f"{key}.label")
        members = [seed + MEMBER_SEEDS * k for seed in self.seeds for k in range(arm.members)]
        if len(set(members)) < len(members):
            raise SettingError(
                f"Two of the seeds would share a network of the ensemble {arm.name}, as member k of seed s "
                f"has seed s + {MEMBER_SEEDS} k; take seeds 0, 1, 2, ...",
                "seeds",
            )
        if arm.start is not None and arm.start not in above:
            message = (
                f"{arm.start!r} is no arm above {arm.name}, which starts from it; {suggest(arm.start, above)}"
            )
            raise SettingError(message, f"{key}.start")

    def at(self, root: str | None) -> Study:
        """Returns the same study with its data at `root`, if one is given."""
        moved = {} if root is None else {"data": {"root": root}}
        return replace(self, arms=tuple(arm.with_overrides(moved) for arm in self.arms))

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def run_config(self, arm: Arm, setting: str, sigma: float, seed: int) -> RunConfig:
        """Returns the configuration of one training: recipe, overrides of arm and setting, sigma and seed.

        Precision `auto` becomes float32: otherwise two rows would differ by the machines that trained them.
        """
        # Later overrides win: recipe, arm, setting, and last what the study sets itself.
        recipe = to_dict(recipes.get(arm.recipe, **{"sigma": sigma, **arm.arguments}))
        config = merge(merge(recipe, arm.overrides), self.settings[setting])
        config = merge(config, {"train": {"sigma": sigma, "seed": seed, "threads": 1}})
        if config["train"]["precision"] == "auto":
            config["train"]["precision"] = "float32"
        return from_dict(RunConfig, config)

    @property
    def differences(self) -> tuple[tuple[str, str], ...]:
        first = self.arms[0].name
        pairs = self.show.differences or [(arm.name, first) for arm in self.arms[1:]]
        return tuple((this, baseline) for this, baseline in pairs)


def certify_config(certify: Overrides, sigma: float, aggregation: str = ENSEMBLE) -> CertifyConfig:
    """Returns the certification of a study's rows, with noise of seed 0 unless `certify` names another."""
    fields = {"seed": 0, **certify, "sigma": sigma, "aggregation": aggregation}
    return from_dict(CertifyConfig, fields, "certify")


# Study files


@dataclass(frozen=True, kw_only=True, slots=True)
class _StudyFile:
    """The tables of a study file; `all` holds what every arm has."""

    title: str = ""
    sigmas: tuple[float, ...] = ()
    seeds: tuple[int, ...] = (0,)
    all: dict[str, Any] = field(default_factory=dict)
    arms: dict[str, dict[str, Any]] = field(default_factory=dict)
    settings: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    certify: dict[str, Any] = field(default_factory=dict)
    images: Images = field(default_factory=Images)
    show: Show = field(default_factory=Show)


def read_study(path: Path | str) -> Study:
    """Reads a study from a TOML file; raises ConfigError that names the key and the nearest known one."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"The study file {path} cannot be read ({error.strerror}); check the path."
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(f"The study file {path} is not UTF-8 text; save it as UTF-8.") from None
    return parse_study(text, Path(path).stem, str(path))


def parse_study(text: str, name: str, file: str) -> Study:
    """Reads a study from TOML."""
    data = load_toml(text, file)
    try:
        tables = from_dict(_StudyFile, data)
        arms = []
        for arm, table in tables.arms.items():
            fields = merge(tables.all, table)
            if "recipe" not in fields:
                message = f"Arm {arm} has no recipe; add `recipe = ...` to it or to [all]."
                raise SettingError(message, f"arms.{arm}")
            if "name" in fields:
                message = f"Arm {arm} has the name of its table; drop `name`, or write `label`."
                raise SettingError(message, f"arms.{arm}.name")
            arms.append(from_dict(Arm, {**fields, "name": arm}, f"arms.{arm}"))
        study = Study(
            name=name,
            title=tables.title or name,
            arms=tuple(arms),
            sigmas=tables.sigmas,
            seeds=tables.seeds,
            settings=tables.settings or {"": {}},
            certify=tables.certify,
            images=tables.images,
            show=tables.show,
        )
        _check_configurable(study)
    except SettingError as error:
        # An unknown table inside of an arm or setting is most often the rest of a name with a dot.
        deep = error.key.startswith(("arms.", "settings.")) and "Unknown setting" in str(error)
        hint = " (A name that holds a dot needs quotes.)" if deep and error.key.count(".") == 2 else ""
        raise ConfigError(f"{file}, at {error.key}: {error}{hint}") from None
    return study


def load_toml(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}.") from None


def _check_configurable(study: Study) -> None:
    """Builds all configurations, to name the key of what cannot be trained or certified."""
    from smoothheads.models.aggregate import aggregations, plugin_aggregation  # imports torch

    for arm in study.arms:
        here = f"arms.{arm.name}"
        try:
            recipes.get(arm.recipe, **{"sigma": study.sigmas[0], **arm.arguments})
        except ConfigError as error:
            raise SettingError(str(error), f"{here}.recipe") from None
        for setting, overrides in study.settings.items():
            try:
                config = study.run_config(arm, setting, study.sigmas[0], study.seeds[0])
            except ConfigError as error:
                key = getattr(error, "key", "")
                # The setting's overrides win over the arm's, so the value is the setting's if it has the key.
                own = overrides and any(key.startswith(each) for each, _ in leaves(overrides))
                place = f"settings.{setting}" if own else here
                raise SettingError(str(error), f"{place}.{key}".strip(".")) from None
        # The aggregation must be one of the joined network. Whether heads have learned weights is known only
        # after training, so both are allowed.
        heads = config.model.heads * arm.members
        known = aggregations(heads, weighted=True)
        if arm.aggregation not in known and plugin_aggregation(arm.aggregation) is None:
            raise SettingError(
                f"Arm {arm.name} has {heads} heads and no aggregation {arm.aggregation!r}; "
                f"{suggest(arm.aggregation, known)}",
                f"{here}.aggregation",
            )
    for sigma in study.sigmas:
        try:
            certify_config(study.certify, sigma)
        except ConfigError as error:
            raise SettingError(str(error), getattr(error, "key", "") or "certify") from None
