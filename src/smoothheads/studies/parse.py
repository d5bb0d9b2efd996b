"""Reads a study from TOML; whatever is wrong in it is said with its line before anything starts."""

from __future__ import annotations

import dataclasses
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from smoothheads.config import from_dict, merge
from smoothheads.errors import ConfigError, SettingError, one_of, suggest
from smoothheads.models.aggregate import aggregations, plugin_aggregation
from smoothheads.studies.spec import Arm, Images, Show, Study
from smoothheads.training import RunConfig

_TOP = ("title", "sigmas", "seeds", "all", "arms", "settings", "certify", "images", "show")
_ARM = ("recipe", "arguments", "members", "aggregation", "start", "sigmas", "label")
_RUN = tuple(field.name for field in dataclasses.fields(RunConfig) if not field.name.startswith("init"))


def read_study(path: Path) -> Study:
    """The study in a TOML file; raises ConfigError that names the line and the nearest known key."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"a study file at {path}", str(error.strerror), "check the path") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"a study file in UTF-8 at {path}", str(error), "save it as UTF-8") from None
    return parse_study(text, path.stem, str(path))


def parse_study(text: str, name: str, where: str) -> Study:
    data = load_toml(text, where)
    try:
        study = _study(data, name)
    except _UnknownKeyError as unknown:
        line, got = line_of(text, unknown.path), repr(unknown.path[-1])
        named = re.match(r"\s*\[", text.splitlines()[line - 1]) and unknown.path[0] in ("arms", "settings")
        remedy = f"{unknown.remedy} (a name that holds a dot needs quotes)" if named else unknown.remedy
        raise ConfigError(f"a known key in line {line} of {where}", got, remedy) from None
    except ConfigError as error:
        place = re.search(r" (?:at|in) ([\w.]+)$", error.expected)
        key = error.key if isinstance(error, SettingError) else place[1] if place else ""
        line = line_of(text, tuple(key.split("."))) if key else 0
        raise _located(error, f" (line {line} of {where})" if line else f" ({where})") from None
    _check(study, text, where)
    return study


def _located(error: ConfigError, said: str) -> ConfigError:
    """Returns the same error with its place in the file."""
    if not error.got:
        return ConfigError(f"{error}{said}")
    return ConfigError(error.expected + said, error.got, error.remedy)


def load_toml(text: str, where: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"TOML in {where}", str(error), "repair that line") from None


def line_of(text: str, path: tuple[str, ...]) -> int:
    """The first line where the key at `path` is set, whether in a table, dotted or inline; 0 if nowhere."""
    table: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := re.match(r"\s*\[+\s*([^\]]+?)\s*\]+", line):
            table = _words(header[1])
            if table[: len(path)] == path:
                return number
        elif key := re.match(r"\s*([\w.\"'-]+(?:\s*\.\s*[\w\"'-]+)*)\s*=", line):
            full = table + _words(key[1])
            inline = full == path[: len(full)] and re.search(rf"[{{,]\s*[\"']?{re.escape(path[-1])}\b", line)
            if full[: len(path)] == path or inline:
                return number
    return 0


class _UnknownKeyError(Exception):
    def __init__(self, path: tuple[str, ...], known: Iterable[str]) -> None:
        self.path, self.remedy = path, suggest(path[-1], known)


def _study(data: Mapping[str, Any], name: str) -> Study:
    _known(data, _TOP, ())
    common = _table(data, "all")
    _known(common, (*_ARM, *_RUN), ("all",))
    arms = _table(data, "arms")
    settings = _table(data, "settings")
    for setting, changes in settings.items():
        _known(_as_table(changes, f"settings.{setting}"), _RUN, ("settings", setting))
        for key, value in changes.items():
            _as_table(value, f"settings.{setting}.{key}")
    return Study(
        name=name,
        title=_text(data.get("title", name), "title"),
        arms=tuple(_arm(each, _as_table(arms[each], f"arms.{each}"), common) for each in arms),
        sigmas=tuple(_numbers(data.get("sigmas"), "sigmas")),
        seeds=_seeds(data),
        settings=settings or {"": {}},
        certify=_table(data, "certify"),
        images=_fields(Images, _table(data, "images"), "images"),
        show=_show(_table(data, "show")),
    )


def _arm(name: str, data: Mapping[str, Any], common: Mapping[str, Any]) -> Arm:
    _known(data, (*_ARM, *_RUN), ("arms", name))
    merged = merge(common, data)
    if "recipe" not in merged:
        raise ConfigError(f"a recipe for arm {name}", "none", "add `recipe = ...` to it or to [all]")
    settings = {key: value for key, value in merged.items() if key in _ARM}
    changes = {key: _as_table(value, f"arms.{name}.{key}") for key, value in merged.items() if key in _RUN}
    return replace(from_dict(Arm, settings | {"name": name}, f"arms.{name}"), changes=changes)


def _show(data: Mapping[str, Any]) -> Show:
    _known(data, [field.name for field in dataclasses.fields(Show)], ("show",))
    pairs = data.get("differences", [])
    lists = isinstance(pairs, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in pairs)
    if not (lists and all(isinstance(name, str) for pair in pairs for name in pair)):
        raise ConfigError("pairs [this, baseline] in show.differences", repr(pairs), "name two arms in each")
    radii = _numbers(data.get("radii", list(Show().radii)), "show.radii")
    return Show(radii=tuple(map(float, radii)), differences=tuple((a, b) for a, b in pairs))


def _fields(kind: Any, data: Mapping[str, Any], where: str) -> Any:
    _known(data, [field.name for field in dataclasses.fields(kind)], (where,))
    return from_dict(kind, dict(data), where)


def _known(data: Mapping[str, Any], known: Iterable[str], path: tuple[str, ...]) -> None:
    for key in data:
        if key not in known:
            raise _UnknownKeyError((*path, key), known)


def _table(data: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    return _as_table(data.get(key, {}), key)


def _as_table(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"a table at {where}", repr(value), f"write [{where}] and its fields below it")
    return value


def _seeds(data: Mapping[str, Any]) -> tuple[int, ...]:
    seeds = data.get("seeds", [0])
    if not (isinstance(seeds, list) and all(type(seed) is int and seed >= 0 for seed in seeds)):
        raise ConfigError("a list of integers >= 0 at seeds", repr(seeds), "for example seeds = [0, 1, 2]")
    return tuple(seeds)


def _numbers(values: Any, key: str) -> list[float]:
    if not (isinstance(values, list) and all(type(value) in (int, float) for value in values)):
        example = f"{key.rpartition('.')[2]} = [0.25, 0.5]"
        raise ConfigError(f"a list of numbers at {key}", repr(values), f"for example {example}")
    return values


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"text at {key}", repr(value), "put it in quotes")
    return value


def _words(key: str) -> tuple[str, ...]:
    """The parts of a dotted key; one in quotes may hold dots itself."""
    return tuple(word.strip("\"'") for word in re.findall(r"\"[^\"]*\"|'[^']*'|[^.\s]+", key))


def _check(study: Study, text: str, where: str) -> None:
    """Every arm in every setting and every certification can be made; the line of what cannot is named."""
    for arm in study.arms:
        for setting in study.settings:
            places = [("arms", arm.name), ("settings", setting), ("all",)]
            with _placed(text, where, places):
                config = study.run_config(arm, setting, study.sigmas[0], study.seeds[0])
            with _placed(text, where, [("arms", arm.name, "aggregation")]):
                _check_aggregation(arm, config.model.heads * arm.members)
    with _placed(text, where, [("certify",)]):
        for sigma in study.sigmas:
            study.certify_config(sigma)


def _check_aggregation(arm: Arm, heads: int) -> None:
    """Before anything is trained; learned weights are known only then, so that `weighted` may fail later."""
    known = aggregations(heads, weighted=True)
    if arm.aggregation not in known and plugin_aggregation(arm.aggregation) is None:
        raise one_of(f"aggregation of arm {arm.name} (heads: {heads})", arm.aggregation, known)


@contextmanager
def _placed(text: str, where: str, places: Sequence[tuple[str, ...]]) -> Iterator[None]:
    """Adds the line to an error that names a field, as in `a field of TrainConfig at config.train`."""
    try:
        yield
    except ConfigError as error:
        key = error.key if isinstance(error, SettingError) else error.got.strip("'")
        fields = tuple(key.split(".")) if key else ()
        tried = [(*place, *fields[:count]) for count in range(len(fields), 0, -1) for place in places]
        tried += [(*place, "recipe") for place in places]
        tried += places
        line = next((found for path in tried if (found := line_of(text, path))), 0)
        said = f" (line {line} of {where})" if line else f" ({where})"
        raise _located(error, said) from None
