"""The paper's experiments as studies: every published row is an arm, at every scale."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any, Literal

from smoothheads.config import from_dict, merge
from smoothheads.errors import ConfigError, one_of
from smoothheads.studies import published
from smoothheads.studies.parse import load_toml
from smoothheads.studies.spec import Arm, Changes, Images, Show, Study

Kind = Literal["certification", "cost", "diagnosis", "schedule"]
SCALES = ("paper", "small", "smoke")
_TEACHING = {
    "some-hard": {"weights": "hard"},
    "some-high": {"weights": "high"},
    "some-self": {"shift": "self"},
}


@dataclass(frozen=True, slots=True)
class Experiment:
    id: str
    title: str
    kind: Kind
    radii: tuple[float, ...] = (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 1.75, 2.0, 2.25)
    imagenet: bool = False

    @property
    def trained(self) -> bool:
        """Whether networks have to be trained for it."""
        return self.kind != "schedule" and self.id != "table2"

    @property
    def rows(self) -> tuple[published.PublishedRow, ...]:
        return () if self.kind == "schedule" else published.rows(self.id)


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


_COUNTED = "smoothheads info resnet110 --heads 5 --cut stage2 counts the layers and parameters it shows"
_NOT_RUN = {
    "table1": ("notation", "docs/methods.md names the same things"),
    "alg1": ("a definition", "docs/methods.md has it, and src/smoothheads/objectives/objective.py is it"),
    "fig1": ("a drawing", _COUNTED),
    "fig6": ("a drawing", _COUNTED),
}


def get(name: str) -> Experiment:
    if name in _NOT_RUN:
        what, instead = _NOT_RUN[name]
        raise ConfigError("an experiment with numbers", f"{name}, which is {what}", instead)
    if name not in EXPERIMENTS:
        raise one_of("experiment", name, EXPERIMENTS)
    return EXPERIMENTS[name]


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnScale:
    """What one experiment has otherwise."""

    title: str | None = None
    seeds: tuple[int, ...] | None = None
    all: dict[str, Any] = field(default_factory=dict)
    images: dict[str, Any] = field(default_factory=dict)
    cifar: bool = False
    """CIFAR-10 instead of ImageNet."""
    sigmas: tuple[float, ...] | None = None
    """Only these rows, and so `bases`."""
    bases: tuple[str, ...] | None = None
    without: tuple[str, ...] = ()
    """Structures that are left out."""

    def wants(self, row: published.PublishedRow) -> bool:
        return (
            (self.sigmas is None or row.sigma in self.sigmas)
            and (self.bases is None or row.base in self.bases)
            and row.structure not in self.without
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Scale:
    """What may shrink: data, network and epochs. The comparison itself stays."""

    title: str
    seeds: tuple[int, ...] = (0,)
    all: dict[str, Any] = field(default_factory=dict)
    heads: dict[str, Any] = field(default_factory=dict)
    """Changes of the arms whose heads are trained together."""
    methods: dict[str, Any] = field(default_factory=dict)
    """Changes of the arms of one base method."""
    certify: dict[str, Any] = field(default_factory=dict)
    images: dict[str, Any] = field(default_factory=dict)
    draws: int = 10_000
    """Noise draws of fig2."""
    costs: dict[str, Any] = field(default_factory=dict)
    """How cost tables are measured; by default with networks as large as the paper's."""
    experiments: dict[str, OwnScale] = field(default_factory=dict)


def scale(name: str) -> Scale:
    """One of ours by name, or anybody's from a TOML file."""
    if name in SCALES:
        text = resources.files("smoothheads.studies").joinpath("scales", f"{name}.toml").read_text("utf-8")
    elif Path(name).suffix == ".toml" and Path(name).is_file():
        text = Path(name).read_text(encoding="utf-8")
    else:
        raise one_of("scale", name, SCALES)
    found = from_dict(Scale, load_toml(text, name), f"the scale {name}")
    for experiment in found.experiments:
        get(experiment)
    return found


def study(experiment: Experiment, chosen: Scale, root: str | None = None) -> Study:
    """The experiment at that scale; `root` says where its data lie."""
    own = chosen.experiments.get(experiment.id, OwnScale())
    imagenet = experiment.imagenet and not own.cifar
    common = merge(chosen.all, own.all)
    common = common if root is None else merge(common, {"data": {"root": root}})
    rows = [row for row in experiment.rows if own.wants(row)]
    if not rows:
        raise ConfigError(f"rows of {experiment.id} at this scale", "none", "widen its sigmas or bases")
    arms: dict[str, Arm] = {}
    for row in rows:
        for arm in _arms(row, imagenet, heads=3 if experiment.imagenet else 5):
            sigmas = (*arms[arm.name].sigmas, row.sigma) if arm.name in arms else (row.sigma,)
            together = chosen.heads if row.structure.startswith(("some", "heads")) else {}
            changes = merge(merge(arm.changes, common), chosen.methods.get(arm.arguments["method"], {}))
            changes = merge(changes, together)
            arms[arm.name] = dataclasses.replace(arm, changes=changes, sigmas=tuple(dict.fromkeys(sigmas)))
    return Study(
        name=experiment.id,
        title=f"{experiment.id}: {experiment.title} ({own.title or chosen.title})",
        arms=tuple(arms.values()),
        sigmas=tuple(dict.fromkeys(row.sigma for row in rows)),
        seeds=own.seeds or chosen.seeds,
        certify=chosen.certify,
        images=from_dict(Images, dict(merge(chosen.images, own.images))),
        show=Show(radii=experiment.radii),
    )


def _arms(row: published.PublishedRow, imagenet: bool, heads: int) -> list[Arm]:
    """The arm of a published row, after the one that it starts from, if any."""
    start = "imagenet-resnet50" if imagenet else "cifar10-resnet110"
    some = f"{start}-some"
    arguments: dict[str, Any] = {"method": row.base}
    name, structure = row.arm, row.structure
    size = {} if imagenet or heads == 5 else {"model": {"heads": heads}}
    if structure == "single":
        return [Arm(name=name, recipe=start, arguments=arguments)]
    if structure == "single-m2":
        return [Arm(name=name, recipe=start, arguments=arguments | {"min_draws": 2})]
    if structure.startswith("single"):  # members of the ensemble of three
        return [
            Arm(name=name, recipe=start, arguments=arguments, members=3, aggregation=f"head-{structure[-1]}")
        ]
    if structure.startswith("dnn"):
        return [Arm(name=name, recipe=start, arguments=arguments, members=int(structure[3:]))]
    if structure == "drt3":
        return _drt(row, start)
    if structure in ("heads", "heads-mid"):
        cut = {"model": {"cut": "stage3-mid"}} if structure == "heads-mid" else {}
        return [Arm(name=name, recipe=f"{start}-heads", arguments=arguments | {"heads": 5}, changes=cut)]
    changes: dict[str, Changes] = {
        "some": size,
        "some-nocos": {"objective": {"diversity": {"weight": 0.0}}},
        "some-mid": {"model": {"cut": "stage3-mid"}},
        "some-m4": {"objective": {"method": {"draws": 4}}},
        "some-dnn5": {"model": {"heads": 5, "cut": "input"}},
        **{kind: {"objective": {"teaching": fields}} for kind, fields in _TEACHING.items()},
    }
    if structure in changes:
        return [Arm(name=name, recipe=some, arguments=arguments, changes=changes[structure])]
    size = {"model": {"heads": int(structure.removeprefix("some-"))}}
    return [Arm(name=name, recipe=some, arguments=arguments, changes=size)]


def _drt(row: published.PublishedRow, start: str) -> list[Arm]:
    """Three trained Gaussian networks, then fine-tuned together, with SmoothAdv's attack on each where the
    paper has that (its settings are not printed; these are our recipe's at sigma 0.5)."""
    members = Arm(name="gaussian dnn3", recipe=start, arguments={"method": "gaussian"}, members=3)
    attack = {"draws": 2, "attack_steps": 2, "attack_epsilon": 2.0} if row.base == "smoothadv" else {}
    arguments: dict[str, Any] = {"method": "drt", "heads": 3}
    fine = Arm(name=row.arm, recipe=f"{start}-joint", arguments=arguments, start=members.name)
    return [members, dataclasses.replace(fine, changes={"objective": {"method": attack}})]
