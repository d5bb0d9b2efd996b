"""A method on one network, on the heads of SOME, or on several networks: a function each."""

from __future__ import annotations

from dataclasses import replace

from smoothheads.config import (
    Consistency,
    DiversityConfig,
    Drt,
    Gaussian,
    Macer,
    Method,
    ObjectiveConfig,
    Stability,
    TeachingConfig,
)
from smoothheads.recipes.base import Benchmark, Recipe, Setting

_LAMBDA_LAST = {
    ("gaussian", 0.25): 1.2, ("gaussian", 0.5): 0.8, ("gaussian", 1.0): 0.8,
    ("consistency", 0.25): 1.0, ("consistency", 0.5): 0.8, ("consistency", 1.0): 1.0,
    ("smoothmix", 0.25): 1.6, ("smoothmix", 0.5): 1.0, ("smoothmix", 1.0): 1.6,
}  # fmt: skip
_IMAGENET = {("consistency", 0.25), ("consistency", 0.5), ("gaussian", 1.0)}
_NEEDS = {"cat-rs": ", needs a teacher", "acr-targeted": ", optimises ACR alone"}


def single(bench: Benchmark, setting: Setting) -> Recipe:
    return _recipe(bench, setting, "", f"one {bench.network}")


def single_two_draws(bench: Benchmark, setting: Setting) -> Recipe:
    """The fair control for SOME, which sees every image twice."""
    return _recipe(bench, _two_draws(setting), "m2-", f"one {bench.network}, two draws as SOME has (control)")


def some(bench: Benchmark, setting: Setting, *, cut: str | None = None) -> Recipe:
    """Circular teaching and cosine constraint; with the cut at the input, on separate networks."""
    teaching, source = _teaching(bench, setting.method)
    separate = cut == "input"
    where = f"{bench.heads} {bench.network}s" if separate else f"{bench.heads} heads after {bench.cut}"
    if separate:
        source += (
            "; the paper does not say whether separate networks have the cosine constraint, here they do"
        )
    return _recipe(
        bench,
        _two_draws(setting),
        f"some-{bench.heads}dnns-" if separate else "some-",
        f"SOME: {where}",
        source,
        objective=ObjectiveConfig(teaching=teaching),
        heads=bench.heads,
        cut=cut,
    )


def heads(bench: Benchmark, setting: Setting, *, scaled: bool = False) -> Recipe:
    """Heads on one trunk without teaching and constraint, the control for both."""
    count = bench.heads
    source = f"heads: control, as in the SOME paper's ablation with {count} heads"
    if scaled:
        source += f"; head_lr_scale {count} undoes the mean over heads"
    return _recipe(
        bench,
        _two_draws(setting),
        f"{count}heads-lr{count}-" if scaled else f"{count}heads-",
        f"{count} heads without teaching" + (", at a single network's learning rate" if scaled else ""),
        source,
        objective=_PLAIN,
        heads=count,
        train={"head_lr_scale": float(count)} if scaled else {},
    )


def dnns(bench: Benchmark, setting: Setting, *, two_draws: bool = False) -> Recipe:
    """Separate networks whose logits are averaged (Horvath et al.).

    The learning rate is raised and the decay lowered by their number, which undoes the mean over heads: where
    the loss of a network does not depend on the others, this is the same as training each by itself, except
    that they see the same batches and noise.
    """
    count = 3 if isinstance(setting.method, Drt) else bench.heads
    decay = float(setting.train.get("weight_decay", bench.run.train.weight_decay))
    source = f"ensemble: Horvath et al., here all {count} networks see the same batches and noise"
    if not isinstance(setting.method, Gaussian | Stability | Consistency | Macer | Drt):
        source += ", and attacks and choices of images are those of the ensemble"
    return _recipe(
        bench,
        _two_draws(setting) if two_draws else setting,
        f"{count}dnns-m2-" if two_draws else f"{count}dnns-",
        f"{count} {bench.network}s" + (", two draws as SOME has (control)" if two_draws else ""),
        source,
        objective=_PLAIN,
        heads=count,
        cut="input",
        train={"head_lr_scale": float(count), "weight_decay": decay / count},
    )


_PLAIN = ObjectiveConfig(teaching=TeachingConfig(weights="uniform"), diversity=DiversityConfig(weight=0.0))


def _teaching(bench: Benchmark, method: Method) -> tuple[TeachingConfig, str]:
    key = (method.name, bench.sigma)
    if bench.data == "imagenet":
        known = "as in the paper" if key in _IMAGENET else "the paper has no such setting"
        return TeachingConfig(pace="fixed", lambda_last=1.0), (
            f"SOME: {known}; it fixes lambda on ImageNet at a value it does not report, 1.0 is chosen here"
        )
    if bench.data == "cifar10" and key in _LAMBDA_LAST:
        return TeachingConfig(lambda_last=_LAMBDA_LAST[key]), "SOME: the authors' code"
    return TeachingConfig(), "SOME: the paper has no such setting, lambda_last is our default"


def _two_draws(setting: Setting) -> Setting:
    """Two draws at least, as the SOME authors have it."""
    method = setting.method
    if method.draws > 1:
        return setting
    return replace(
        setting, method=replace(method, draws=2), source=f"{setting.source}, but two draws as SOME"
    )


def _recipe(
    bench: Benchmark,
    setting: Setting,
    prefix: str,
    summary: str,
    source: str = "",
    *,
    objective: ObjectiveConfig | None = None,
    heads: int = 1,
    cut: str | None = None,
    train: dict[str, float] | None = None,
) -> Recipe:
    run, method = bench.run, setting.method
    schedule = "otherwise" if setting.train else "schedule"
    return Recipe(
        name=f"{bench.data}-{bench.arch}-{prefix}{method.name}-{bench.sigma:.2f}",
        summary=f"{summary}, {method.name}{_NEEDS.get(method.name, '')}",
        source="; ".join(filter(None, (source, setting.source, f"{schedule}: {bench.source}"))),
        config=replace(
            run,
            model=replace(run.model, heads=heads, cut=cut or bench.cut),
            objective=replace(objective or ObjectiveConfig(), method=method),
            train=replace(run.train, **setting.train | (train or {})),
        ),
    )
