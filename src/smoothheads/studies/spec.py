"""A study: arms crossed with settings, sigmas and seeds, certified alike; in Python or as a TOML file."""

from __future__ import annotations

import dataclasses
import itertools
import re
import tomllib
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from smoothheads import recipes
from smoothheads.certify.config import CertifyConfig
from smoothheads.config import from_dict, merge, to_dict
from smoothheads.config.check import Count, Natural, check_fields
from smoothheads.errors import ConfigError, SettingError, suggest
from smoothheads.training import RunConfig

T = TypeVar("T")
Overrides = Mapping[str, Any]
"""Nested tables of configuration fields, as in `{"train": {"epochs": 50}}`."""
MEMBER_SEEDS = 1000
"""Member k of an ensemble of seed s has seed s + 1000 k, so that ensembles share no member."""
_FIXED = {
    "train": ("sigma", "seed", "threads"),
    "certify": ("sigma", "aggregation"),
}
"""Fields that the study sets itself."""


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
    aggregation: str = "ensemble"
    """Which base classifier is certified, e.g. head-1 or prefix-3."""
    start: str | None = None
    """The arm whose network this one's training starts from."""
    overrides: Overrides = field(default_factory=dict)
    sigmas: tuple[float, ...] = ()
    """The sigmas at which the arm is run; empty: all sigmas of the study."""
    label: str | None = None
    """The arm's title in tables and figures (default: its name)."""

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def title(self) -> str:
        return self.label or self.name


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
    """What the tables hold."""

    radii: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75)
    differences: tuple[tuple[str, ...], ...] = ()
    """Pairs of arms (this, baseline); empty: every arm against the first."""

    def __post_init__(self) -> None:
        for pair in self.differences:
            if len(pair) != 2:
                message = f"show.differences is a list of pairs [this, baseline], not of {list(pair)}."
                raise SettingError(message, "differences")


@dataclass(frozen=True, kw_only=True, slots=True)
class Study:
    """Args:
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
        for what, values in (("arms", self.arms), ("sigmas", self.sigmas), ("seeds", self.seeds)):
            with _at(what):
                if not values:
                    raise ConfigError(f"The study {self.name} has no {what}; give at least one.")
                if what != "arms" and len(set(values)) < len(values):
                    raise ConfigError(f"The study {self.name} names one of its {what} twice; drop it.")
                if what == "seeds" and min(self.seeds) < 0:
                    raise ConfigError(f"Seeds are integers from 0 on, not {min(self.seeds)}.")
        for arm in self.arms:
            _check_arm(arm, self)
        _check_not_fixed(self.certify, ("certify",))
        for name, overrides in self.settings.items():
            _check_not_fixed(overrides.get("train", {}), ("settings", name, "train"))
        known = [arm.name for arm in self.arms]
        for pair in self.show.differences:
            for name in pair:
                if name not in known:
                    with _at("show", "differences"):
                        raise ConfigError(f"{name!r} is not an arm of the study; {suggest(name, known)}")

    def at(self, root: str | None) -> Study:
        """Returns the same study with its data at `root`, if one is given."""
        if root is None:
            return self
        moved = {"data": {"root": root}}
        return replace(
            self, arms=tuple(replace(arm, overrides=merge(arm.overrides, moved)) for arm in self.arms)
        )

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.arms if arm.name == name)

    def run_config(self, arm: Arm, setting: str, sigma: float, seed: int) -> RunConfig:
        """Returns the configuration of one training: recipe, overrides of arm and setting, sigma and seed.

        Precision `auto` becomes float32: otherwise two rows would differ by the machines that trained them.
        """
        recipe = to_dict(recipes.get(arm.recipe, **{"sigma": sigma, **arm.arguments}))
        overrides = merge(arm.overrides, self.settings[setting])
        fixed = {"train": {"sigma": sigma, "seed": seed, "threads": 1}}
        config = merge(merge(recipe, overrides), fixed)
        if config["train"]["precision"] == "auto":
            config["train"]["precision"] = "float32"
        return from_dict(RunConfig, config)

    def certify_config(self, sigma: float, aggregation: str = "ensemble") -> CertifyConfig:
        """Raises ConfigError for an engine `auto`, which each row would choose on its own."""
        config = certify_config(self.certify, sigma, aggregation)
        if config.has_auto:
            raise ConfigError(
                "All rows of a study need the same engine, and 'auto' is chosen anew for each: name it, for "
                "example openvino or torch."
            )
        return config

    @property
    def differences(self) -> tuple[tuple[str, str], ...]:
        first = self.arms[0].name
        pairs = self.show.differences or [(arm.name, first) for arm in self.arms[1:]]
        return tuple((this, baseline) for this, baseline in pairs)


def certify_config(certify: Overrides, sigma: float, aggregation: str = "ensemble") -> CertifyConfig:
    """Returns the certification of a study's rows, with noise of seed 0 unless `certify` names another."""
    return from_dict(CertifyConfig, {"seed": 0, **certify, "sigma": sigma, "aggregation": aggregation})


def _check_arm(arm: Arm, study: Study) -> None:
    here = ("arms", arm.name)
    if others := [sigma for sigma in arm.sigmas if sigma not in study.sigmas]:
        with _at(*here, "sigmas"):
            raise ConfigError(
                f"Arm {arm.name} has sigma {others[0]:g}, which the study does not have; add it there."
            )
    if [each.title for each in study.arms].count(arm.title) > 1:
        with _at(*here, "label"):
            raise ConfigError(f"Two arms have the label {arm.title!r}; rename one of them.")
    _check_not_fixed(arm.overrides.get("train", {}), (*here, "train"))
    # Member k of seed s has seed s + 1000 k, so seeds that differ by a multiple of 1000 may share a member.
    for a, b in itertools.combinations(sorted(study.seeds), 2):
        distance, rest = divmod(b - a, MEMBER_SEEDS)
        if rest == 0 and distance < arm.members:
            with _at("seeds"):
                raise ConfigError(
                    f"The ensembles {arm.name} of seeds {a} and {b} would share a network, as member k of "
                    f"seed s has seed s + {MEMBER_SEEDS} k; take seeds 0, 1, 2, ..."
                )
    with _at(*here, "start"):
        starts, chain = {each.name: each.start for each in study.arms}, [arm.name]
        while (start := starts[chain[-1]]) is not None:
            if start not in starts:
                raise ConfigError(f"{start!r} is not an arm of the study; {suggest(start, starts)}")
            if start in chain:
                raise ConfigError(
                    f"Arms start from each other in a circle ({' from '.join([*chain, start])})."
                )
            chain.append(start)


def _check_not_fixed(overrides: Any, place: tuple[str, ...]) -> None:
    """Refuses fields that the study sets itself, which would be ignored."""
    for name in _FIXED[place[-1]]:
        if isinstance(overrides, Mapping) and name in overrides:
            with _at(*place, name):
                raise ConfigError(
                    f"Drop {place[-1]}.{name}: sigmas and seeds belong to the study, aggregations to "
                    "its arms, and every job has one thread."
                )


# Study files


class _KeyedError(ConfigError):
    """A mistake at a key of a study file."""

    def __init__(self, path: tuple[str, ...], message: str) -> None:
        super().__init__(message)
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.path, str(self))


@contextmanager
def _at(*path: str) -> Iterator[None]:
    """Notes the key at which a ConfigError is raised; the innermost block wins, as it knows best."""
    try:
        yield
    except _KeyedError:
        raise
    except ConfigError as error:
        key = error.key if isinstance(error, SettingError) else ""
        raise _KeyedError((*path, *filter(None, key.split("."))), str(error)) from None


def read_study(path: Path | str) -> Study:
    """Reads a study from a TOML file; raises ConfigError that names the line and the nearest known key."""
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
    """Reads a study from the `text` of a TOML file; `file` names it in messages."""
    data = load_toml(text, file)
    try:
        study = _study(data, name)
        _check_configurable(study)
    except _KeyedError as error:
        line, depth = line_of(text, error.path)
        if error.path[0] == "arms" and depth <= 2:
            # What an arm does not set itself may stand in [all], or in a setting.
            for place in (("all",), *(("settings", name) for name in data.get("settings", {}))):
                found, depth = line_of(text, (*place, *error.path[2:]))
                if depth > len(place):
                    line = found
                    break
        raise ConfigError(f"{file}{f', line {line}' if line else ''}: {error}") from None
    return study


def load_toml(text: str, file: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file} is not valid TOML: {error}.") from None


def line_of(text: str, path: tuple[str, ...]) -> tuple[int, int]:
    """Returns the line that sets the key at `path`, or else the nearest table around it, and how many keys of
    the path it names.

    Follows `[table]` headers and dotted keys; a key of an inline table has the line of that table.
    """
    table: tuple[str, ...] = ()
    best = deepest = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            table = full = _words(header[1])
        elif key := re.match(r"\s*([\w.\"'-]+(?:\s*\.\s*[\w\"'-]+)*)\s*=", line):
            full = table + _words(key[1])
        else:
            continue
        depth = min(len(full), len(path))
        if full[:depth] == path[:depth] and depth > deepest:
            best, deepest = number, depth
    return best, deepest


def _words(key: str) -> tuple[str, ...]:
    """Splits a dotted key; a part in quotes may hold dots itself."""
    return tuple(word.strip("\"'") for word in re.findall(r"\"[^\"]*\"|'[^']*'|[^.\s]+", key))


_ARM = tuple(each.name for each in dataclasses.fields(Arm) if each.name not in ("name", "overrides"))
_RUN = tuple(each.name for each in dataclasses.fields(RunConfig) if each.name != "init")


@dataclass(frozen=True, kw_only=True, slots=True)
class _Top:
    """The single values at the top of a study file."""

    title: str = ""
    sigmas: tuple[float, ...] = ()
    seeds: tuple[int, ...] = (0,)


def _study(data: Mapping[str, Any], name: str) -> Study:
    values = [each.name for each in dataclasses.fields(_Top)]
    _check_known(data, (*values, "all", "arms", "settings", "certify", "images", "show"), ())
    top = _fields(_Top, {key: data[key] for key in values if key in data}, ())
    common = _table(data, "all")
    _check_known(common, (*_ARM, *_RUN), ("all",))
    for stage in _RUN:
        _table(data, "all", stage)
    settings = {each: _table(data, "settings", each) for each in _table(data, "settings")}
    for setting, overrides in settings.items():
        _check_known(overrides, _RUN, ("settings", setting))
        for stage in overrides:
            _table(data, "settings", setting, stage)
    return Study(
        name=name,
        title=top.title or name,
        arms=tuple(_arm(each, data, common) for each in _table(data, "arms")),
        sigmas=top.sigmas,
        seeds=top.seeds,
        settings=settings or {"": {}},
        certify=_table(data, "certify"),
        images=_fields(Images, _table(data, "images"), ("images",)),
        show=_fields(Show, _table(data, "show"), ("show",)),
    )


def _arm(name: str, data: Mapping[str, Any], common: Mapping[str, Any]) -> Arm:
    here = ("arms", name)
    table = _table(data, *here)
    _check_known(table, (*_ARM, *_RUN), here)
    for stage in _RUN:
        _table(data, *here, stage)
    merged = merge(common, table)
    if "recipe" not in merged:
        with _at(*here):
            raise ConfigError(f"Arm {name} has no recipe; add `recipe = ...` to it or to [all].")
    fields = {key: value for key, value in merged.items() if key in _ARM}
    arm = _fields(Arm, fields, here, name=name, recipe=fields["recipe"])
    return replace(arm, overrides={key: value for key, value in merged.items() if key in _RUN})


def _fields(kind: type[T], table: Mapping[str, Any], place: tuple[str, ...], **required: Any) -> T:
    with _at(*place):
        return from_dict(kind, {**required, **table})


def _table(data: Mapping[str, Any], *path: str) -> Mapping[str, Any]:
    found: Any = data
    for key in path:
        found = found.get(key, {})
    if not isinstance(found, dict):
        with _at(*path):
            raise ConfigError(f"{'.'.join(path)} is a table, not {found!r}; write its fields as key = value.")
    return found


def _check_known(data: Mapping[str, Any], known: Collection[str], path: tuple[str, ...]) -> None:
    for key, value in data.items():
        if key not in known:
            dotted = path[:1] in (("arms",), ("settings",)) and isinstance(value, dict)
            hint = " (A name that holds a dot needs quotes.)" if dotted else ""
            with _at(*path, key):
                raise ConfigError(
                    f"{key!r} is not a key of {'.'.join(path) or 'a study'}; {suggest(key, known)}{hint}"
                )


def _check_configurable(study: Study) -> None:
    """Builds all configurations, to name the key of what cannot be trained or certified."""
    from smoothheads.models.aggregate import aggregations, plugin_aggregation  # imports torch

    for arm in study.arms:
        for setting in study.settings:
            with _at("arms", arm.name, "recipe"):
                bare = replace(study, settings={"": {}})
                bare.run_config(replace(arm, overrides={}), "", study.sigmas[0], study.seeds[0])
            try:
                config = study.run_config(arm, setting, study.sigmas[0], study.seeds[0])
            except ConfigError as error:
                path = error.key.split(".") if isinstance(error, SettingError) else []
                # The setting's overrides win over the arm's, so the value is the setting's if it has the key.
                overridden: Any = study.settings[setting]
                for part in path:
                    overridden = overridden.get(part) if isinstance(overridden, Mapping) else None
                place = ("settings", setting) if path and overridden is not None else ("arms", arm.name)
                raise _KeyedError((*place, *path), str(error)) from None
        heads = config.model.heads * arm.members
        known = aggregations(
            heads, weighted=True
        )  # whether weights were learned is known only after training
        if arm.aggregation not in known and plugin_aggregation(arm.aggregation) is None:
            with _at("arms", arm.name, "aggregation"):
                raise ConfigError(
                    f"Arm {arm.name} has {heads} heads and no aggregation {arm.aggregation!r}; "
                    f"{suggest(arm.aggregation, known)}"
                )
    for sigma in study.sigmas:
        try:
            study.certify_config(sigma)
        except ConfigError as error:
            # To blame is the first setting without which the others work.
            for key in study.certify:
                rest = {name: value for name, value in study.certify.items() if name != key}
                try:
                    replace(study, certify=rest).certify_config(sigma)
                except ConfigError:
                    continue
                raise _KeyedError(("certify", key), str(error)) from None
            raise _KeyedError(("certify",), str(error)) from None
