"""The paper's experiments: what was published, and the same rows as a study at any scale."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from smoothheads.config import from_dict, merge
from smoothheads.errors import ConfigError, suggest
from smoothheads.report.table import NONE, Cell, Table, word
from smoothheads.studies.spec import Arm, Images, Show, Study, load_toml

Kind = Literal["certification", "cost", "diagnosis", "schedule"]
SCALES = ("paper", "small", "smoke")
_STRUCTURES: Mapping[str, dict[str, Any]] = {
    "heads": {},
    "heads-mid": {"model": {"cut": "stage3-mid"}},
    "some-nocos": {"objective": {"diversity": {"weight": 0.0}}},
    "some-mid": {"model": {"cut": "stage3-mid"}},
    "some-m4": {"objective": {"method": {"draws": 4}}},
    "some-dnn5": {"model": {"heads": 5, "cut": "input"}},
    "some-hard": {"objective": {"teaching": {"weights": "hard"}}},
    "some-high": {"objective": {"teaching": {"weights": "high"}}},
    "some-self": {"objective": {"teaching": {"shift": "self"}}},
}
"""Overrides of the recipes with heads; `some-L` is SOME with L heads."""


@dataclass(frozen=True, slots=True)
class PublishedRow:
    """A row of a table or figure of the paper."""

    sigma: float
    base: str
    structure: str
    values: Mapping[str, str]
    """The printed text of every column; empty where nothing is printed."""

    def number(self, column: str) -> float | None:
        """Returns a printed number; None where nothing is printed."""
        text = self.values.get(column, "")
        return float(text) if text else None

    @property
    def arm(self) -> str:
        return f"{self.base} {self.structure}"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A table or figure of the paper that has numbers."""

    id: str
    title: str
    kind: Kind
    radii: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25)
    imagenet: bool = False

    @property
    def trained(self) -> bool:
        """True if networks have to be trained for it."""
        return self.kind != "schedule" and self.id != "table2"

    @property
    def rows(self) -> tuple[PublishedRow, ...]:
        return () if self.kind == "schedule" else published_rows(self.id)


_HALVES = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5)
EXPERIMENTS = {
    each.id: each
    for each in (
        Experiment("table2", "certification time of 1 DNN, 5 DNNs and 5 heads", "cost"),
        Experiment("table3", "CIFAR-10, the main comparison", "certification"),
        Experiment("table4", "ImageNet", "certification", _HALVES, imagenet=True),
        Experiment("table5", "run time on CIFAR-10 at sigma 1", "cost"),
        Experiment("table6", "with and without the cosine term", "certification"),
        Experiment("table7", "single network, heads, and heads with teaching", "certification"),
        Experiment("table8", "against 10 DNNs and DRT", "cost"),
        Experiment("table9", "teaching on 5 separate DNNs", "certification"),
        Experiment("fig2", "log-probability gaps without and with teaching", "diagnosis"),
        Experiment("fig3", "where heads begin", "certification"),
        Experiment("fig4", "number of heads", "certification"),
        Experiment("fig5", "soft or hard weights, favouring hard samples, circle or self", "certification"),
        Experiment("fig7", "lambda against the epoch", "schedule"),
        Experiment("draws", "more than two draws (appendix B, text only)", "certification"),
    )
}


def get(name: str) -> Experiment:
    """Returns an experiment by its name; raises ConfigError that suggests the nearest one."""
    if name not in EXPERIMENTS:
        raise ConfigError(f"{name!r} is not an experiment of the paper; {suggest(name, EXPERIMENTS)}")
    return EXPERIMENTS[name]


# Published values: one CSV per experiment, each row with its sigma, base method and structure.

_KEYS = ("sigma", "base", "structure")


@cache
def published_rows(name: str) -> tuple[PublishedRow, ...]:
    """Returns the published rows of an experiment, in the paper's order."""
    return tuple(
        PublishedRow(
            float(line["sigma"]),
            line["base"],
            line["structure"],
            {key: value for key, value in line.items() if key not in _KEYS},
        )
        for line in _published_lines(name)
    )


def published_table(experiment: Experiment) -> Table:
    """Returns the values as they are printed."""

    def cell(text: str) -> Cell:
        try:
            return Cell(text, float(text)) if text else NONE
        except ValueError:
            return word(text)

    lines = _published_lines(experiment.id)
    columns = tuple(lines[0])
    notes = {
        "ca_": "Columns of radii: certified accuracy (%).",
        "origin": "copied: taken over from Horvath et al. by the paper; measured: by its authors.",
        "status": "The figure prints no numbers; derived: follows from a table.",
    }
    return Table(
        title=f"{experiment.id}: {experiment.title} "
        + ("(computed from the published formula)" if experiment.kind == "schedule" else "(published)"),
        columns=tuple(column.removeprefix("ca_") for column in columns),
        rows=tuple(tuple(cell(line[column]) for column in columns) for line in lines),
        notes=tuple(note for key, note in notes.items() if any(c.startswith(key) for c in columns)),
    )


def _published_lines(name: str) -> list[dict[str, str]]:
    text = resources.files("smoothheads.studies").joinpath("published", f"{name}.csv").read_text("utf-8")
    return list(csv.DictReader(text.splitlines()))


# The experiments as studies


@dataclass(frozen=True, kw_only=True, slots=True)
class ExperimentScale:
    """Overrides of a single experiment."""

    title: str | None = None
    seeds: tuple[int, ...] | None = None
    all: dict[str, Any] = field(default_factory=dict)
    images: dict[str, Any] = field(default_factory=dict)
    cifar: bool = False
    """Use CIFAR-10 instead of ImageNet."""
    sigmas: tuple[float, ...] | None = None
    """Only rows with these sigmas."""
    bases: tuple[str, ...] | None = None
    """Only rows with these base methods."""
    without: tuple[str, ...] = ()
    """Structures that are left out."""

    def includes(self, row: PublishedRow) -> bool:
        """Returns whether the row is run at this scale."""
        return (
            (self.sigmas is None or row.sigma in self.sigmas)
            and (self.bases is None or row.base in self.bases)
            and row.structure not in self.without
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """Overrides of all experiments: data, network and epochs may shrink, the comparison stays."""

    title: str
    seeds: tuple[int, ...] = (0,)
    all: dict[str, Any] = field(default_factory=dict)
    heads: dict[str, Any] = field(default_factory=dict)
    """Overrides of the arms whose heads are trained together."""
    methods: dict[str, Any] = field(default_factory=dict)
    """Overrides of the arms of one base method."""
    certify: dict[str, Any] = field(default_factory=dict)
    images: dict[str, Any] = field(default_factory=dict)
    draws: int = 10_000
    """Noise draws of fig2."""
    experiments: dict[str, ExperimentScale] = field(default_factory=dict)


def scale(name: str) -> Scale:
    """Returns one of SCALES, or a scale of the user from a TOML file."""
    if name in SCALES:
        text = resources.files("smoothheads.studies").joinpath("scales", f"{name}.toml").read_text("utf-8")
    elif Path(name).suffix == ".toml" and Path(name).is_file():
        text = Path(name).read_text(encoding="utf-8")
    else:
        raise ConfigError(f"{name!r} is neither a TOML file nor a scale; {suggest(name, SCALES)}")
    found = from_dict(Scale, load_toml(text, name), f"the scale {name}")
    for experiment in found.experiments:
        get(experiment)
    return found


def study(experiment: Experiment, chosen: Scale, root: str | None = None) -> Study:
    """Returns the experiment as a study."""
    own = chosen.experiments.get(experiment.id, ExperimentScale())
    recipe = "imagenet-resnet50" if experiment.imagenet and not own.cifar else "cifar10-resnet110"
    rows = [row for row in experiment.rows if own.includes(row)]
    if not rows:
        raise ConfigError(f"This scale leaves no row of {experiment.id}; widen its sigmas or bases.")
    arms: dict[str, Arm] = {}
    for row in rows:
        for arm in _arms(row, recipe, heads=3 if experiment.imagenet else 5):
            # Later overrides win: of all arms, of the experiment, of the base method, of arms with heads.
            method = chosen.methods.get(arm.arguments["method"], {})
            heads = chosen.heads if row.structure.startswith(("some", "heads")) else {}
            scaled = arm.with_overrides(chosen.all, own.all, method, heads)
            # The same arm at another sigma is one arm of the study.
            before = arms[arm.name].sigmas if arm.name in arms else ()
            arms[arm.name] = replace(scaled, sigmas=tuple(dict.fromkeys((*before, row.sigma))))
    return Study(
        name=experiment.id,
        title=f"{experiment.id}: {experiment.title} ({own.title or chosen.title})",
        arms=tuple(arms.values()),
        sigmas=tuple(dict.fromkeys(row.sigma for row in rows)),
        seeds=own.seeds or chosen.seeds,
        certify=chosen.certify,
        images=from_dict(Images, merge(chosen.images, own.images)),
        show=Show(radii=experiment.radii),
    ).at(root)


def _arms(row: PublishedRow, recipe: str, heads: int) -> list[Arm]:
    """Returns the arm of a published row, after the arm that it starts from, if any.

    Args:
        heads: The number of heads that the paper has in this experiment.
    """
    name, structure = row.arm, row.structure
    arguments: dict[str, Any] = {"method": row.base}
    if structure == "single":
        return [Arm(name=name, recipe=recipe, arguments=arguments)]
    if structure == "single-m2":
        return [Arm(name=name, recipe=recipe, arguments=arguments | {"min_draws": 2})]
    if structure.startswith("single"):  # members of the ensemble of three
        member = f"head-{structure[-1]}"
        return [Arm(name=name, recipe=recipe, arguments=arguments, members=3, aggregation=member)]
    if structure.startswith("dnn"):
        return [Arm(name=name, recipe=recipe, arguments=arguments, members=int(structure[3:]))]
    if structure == "drt3":
        # DRT fine-tunes three Gaussian networks together. Where the paper has SmoothAdv's attack on each, its
        # settings are not printed: these are our recipe's at sigma 0.5.
        attack = {"draws": 2, "attack_steps": 2, "attack_epsilon": 2.0} if row.base == "smoothadv" else {}
        members = Arm(name="gaussian dnn3", recipe=recipe, arguments={"method": "gaussian"}, members=3)
        drt = Arm(
            name=name,
            recipe=f"{recipe}-joint",
            arguments={"method": "drt", "heads": 3},
            start=members.name,
            objective={"method": attack},
        )
        return [members, drt]
    kind = "heads" if structure.startswith("heads") else "some"
    if structure == "some":
        overrides: dict[str, Any] = {"model": {"heads": heads}}
    elif structure in _STRUCTURES:
        overrides = _STRUCTURES[structure]
    else:
        overrides = {"model": {"heads": int(structure.removeprefix("some-"))}}
    return [Arm(name=name, recipe=f"{recipe}-{kind}", arguments=arguments, **overrides)]
