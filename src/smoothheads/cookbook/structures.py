"""A method on one network, on the heads of SOME, or on several networks: a function each.

`single`: one network; `m2`: one network with two draws, as SOME has. `some`: circular teaching and cosine
constraint on heads; `some-letter`: as the paper's text has it; `some-5dnns`: on separate networks, trained
together. `5heads`: heads without both; `5heads-lr5`: at a single network's learning rate. `dnn5`: five
networks trained apart from five seeds and joined, the field's ensemble. `5dnns`: five networks trained side
by side in one run, which see the same batches and noise; `5dnns-m2`: with two draws.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

from smoothheads.cookbook.base import Benchmark, Recipe, Setting
from smoothheads.errors import ConfigError
from smoothheads.objectives.config import DiversityConfig, ObjectiveConfig, TeachingConfig
from smoothheads.objectives.method import Method

EXAMPLES = "single, m2, some, some-letter, some-5dnns, 5heads, 5heads-lr5, dnn5, 5dnns, 5dnns-m2"

_LAMBDA_LAST = {
    ("gaussian", 0.25): 1.2, ("gaussian", 0.5): 0.8, ("gaussian", 1.0): 0.8,
    ("consistency", 0.25): 1.0, ("consistency", 0.5): 0.8, ("consistency", 1.0): 1.0,
    ("smoothmix", 0.25): 1.6, ("smoothmix", 0.5): 1.0, ("smoothmix", 1.0): 1.6,
}  # fmt: skip
_IMAGENET = {("consistency", 0.25), ("consistency", 0.5), ("gaussian", 1.0)}
_NEEDS = {"cat-rs": ", needs a teacher", "acr-targeted": ", optimises ACR alone"}
_PLAIN = ObjectiveConfig(teaching=TeachingConfig(weights="uniform"), diversity=DiversityConfig(weight=0.0))


class Parts(NamedTuple):
    """What a structure makes of a benchmark and a method's setting."""

    summary: str
    setting: Setting
    source: str = ""
    heads: int = 1
    cut: str | None = None
    objective: ObjectiveConfig | None = None
    train: dict[str, Any] = {}  # noqa: RUF012
    data: dict[str, Any] = {}  # noqa: RUF012
    members: int = 1
    tells_schedule: bool = False
    """Whether `source` says where the schedule is from, too."""


Structure = Callable[[Benchmark, Setting], Parts]


def single(bench: Benchmark, setting: Setting) -> Parts:
    return Parts(f"one {bench.network}", setting)


def single_two_draws(bench: Benchmark, setting: Setting) -> Parts:
    """The fair control for SOME, which sees every image twice."""
    return Parts(f"one {bench.network}, two draws as SOME has (control)", _two_draws(setting))


def some(bench: Benchmark, setting: Setting, separate: int | None = None) -> Parts:
    """Circular teaching and cosine constraint; on so many `separate` networks if given."""
    teaching, source = _teaching(bench, setting.method)
    heads = separate or bench.heads
    where = f"{heads} {bench.network}s" if separate else f"{heads} heads after {bench.run.model.cut}"
    if separate:
        source += (
            "; the paper does not say whether separate networks have the cosine constraint, here they do"
        )
    return Parts(
        f"SOME: {where}",
        _two_draws(setting) if bench.two_draws else setting,
        source,
        heads=heads,
        cut="input" if separate else None,
        objective=ObjectiveConfig(teaching=teaching),
        train={"head_lr_scale": float(heads)} if bench.undo_mean else {},
    )


def letter(bench: Benchmark, setting: Setting) -> Parts:
    """SOME as the text of the paper has it, where that differs from the code behind its numbers."""
    teaching, _ = _teaching(bench, setting.method)
    parts = some(bench, setting)
    return parts._replace(
        summary=f"{parts.summary}, the text to the letter",
        source="SOME paper, appendix B: schedule with Nesterov momentum, batches of 256 images, no image "
        "held out, eq. 3 as printed, eq. 6's mean over heads (over_heads sum: the appendix's sum); "
        "lambda_last, which it does not say: the authors' code",
        objective=ObjectiveConfig(teaching=teaching, diversity=DiversityConfig(form="printed")),
        train={"nesterov": True, "batch": 256, "batch_unit": "images"},
        data={"validation": 0.0},
        tells_schedule=True,
    )


def plain_heads(bench: Benchmark, setting: Setting, count: int, *, scaled: bool) -> Parts:
    """Heads on one trunk without teaching and constraint, the control for both."""
    source = f"heads: control, as in the SOME paper's ablation with {bench.heads} heads"
    if scaled:
        source += f"; head_lr_scale {count} undoes the mean over heads"
    return Parts(
        f"{count} heads without teaching" + (", at a single network's learning rate" if scaled else ""),
        _two_draws(setting) if bench.two_draws else setting,
        source,
        heads=count,
        objective=_PLAIN,
        train={"head_lr_scale": float(count)} if scaled or bench.undo_mean else {},
    )


def members(bench: Benchmark, setting: Setting, count: int) -> Parts:
    """Networks trained apart from as many seeds and joined (Horvath et al.)."""
    if setting.method.least_heads > 1:
        raise ConfigError(
            f"a method that trains one network, for dnn{count}",
            setting.method.name,
            f"it trains networks together: {count}dnns",
        )
    return Parts(
        f"{count} {bench.network}s trained apart", setting, "ensemble: Horvath et al.", members=count
    )


def side_by_side(bench: Benchmark, setting: Setting, count: int, *, two_draws: bool) -> Parts:
    """Separate networks in one run.

    The learning rate is raised and the decay lowered by their number, which undoes the mean over heads: where
    the loss of a network does not depend on the others, this is the same as training each by itself, except
    that they see the same batches and noise. Other methods are refused, unless they need several networks.
    """
    method = setting.method
    if not method.heads_apart and method.least_heads == 1:
        raise ConfigError(
            f"a method whose networks do not see each other, for {count}dnns",
            f"{method.name}, whose attacks and choices of images would be those of all networks together",
            f"choose dnn{count}, which trains them apart",
        )
    decay = float(setting.train.get("weight_decay", bench.run.train.weight_decay))
    return Parts(
        f"{count} {bench.network}s side by side" + (", two draws as SOME has (control)" if two_draws else ""),
        _two_draws(setting) if two_draws else setting,
        f"ensemble: Horvath et al., here all {count} networks see the same batches and noise",
        heads=count,
        cut="input",
        objective=_PLAIN,
        train={"head_lr_scale": float(count), "weight_decay": decay / count},
    )


def find(name: str) -> Structure | None:
    """The structure of that name (see the top of this file); none if there is none."""
    number = re.search(r"\d+", name)
    k = int(number[0]) if number else 0
    named: dict[str, Structure] = {
        "single": single,
        "m2": single_two_draws,
        "some": some,
        "some-letter": letter,
        f"some-{k}dnns": partial(some, separate=k),
        f"{k}heads": partial(plain_heads, count=k, scaled=False),
        f"{k}heads-lr{k}": partial(plain_heads, count=k, scaled=True),
        f"dnn{k}": partial(members, count=k),
        f"{k}dnns": partial(side_by_side, count=k, two_draws=False),
        f"{k}dnns-m2": partial(side_by_side, count=k, two_draws=True),
    }
    return None if number and k < 2 else named.get(name)


def apply(structure: Structure, bench: Benchmark, setting: Setting, recipe_name: str) -> Recipe:
    """The recipe of a structure, a benchmark and a method's setting."""
    parts = structure(bench, setting)
    run, method = bench.run, parts.setting.method
    schedule = f"{'otherwise' if parts.setting.train else 'schedule'}: {bench.source}"
    return Recipe(
        name=recipe_name,
        summary=f"{parts.summary}, {method.name}{_NEEDS.get(method.name, '')}",
        source="; ".join(
            filter(None, (parts.source, parts.setting.source, "" if parts.tells_schedule else schedule))
        ),
        config=replace(
            run,
            data=replace(run.data, **parts.data),
            model=replace(run.model, heads=parts.heads, cut=parts.cut or run.model.cut),
            objective=replace(parts.objective or ObjectiveConfig(), method=method),
            train=replace(run.train, **parts.setting.train | parts.train),
        ),
        members=parts.members,
    )


def _teaching(bench: Benchmark, method: Method) -> tuple[TeachingConfig, str]:
    key = (method.name, bench.sigma)
    if bench.name == "imagenet-resnet50":
        known = "as in the paper" if key in _IMAGENET else "the paper has no such setting"
        return TeachingConfig(pace="fixed", lambda_last=1.0), (
            f"SOME: {known}; it fixes lambda on ImageNet at a value it does not report, 1.0 is chosen here"
        )
    if bench.name == "cifar10-resnet110" and key in _LAMBDA_LAST:
        return TeachingConfig(lambda_last=_LAMBDA_LAST[key]), (
            "SOME: lambda from the authors' code, losses as the paper has them (preset paper)"
        )
    return TeachingConfig(), "SOME: the paper has no such setting, lambda_last is our default"


def _two_draws(setting: Setting) -> Setting:
    """Two draws at least, as the SOME authors have it."""
    method = setting.method
    if method.draws > 1:
        return setting
    return replace(
        setting, method=replace(method, draws=2), source=f"{setting.source}, but two draws as SOME"
    )
