"""Named settings. The command line starts from one of them and overrides fields."""

from __future__ import annotations

from collections.abc import Iterator

from smoothheads.config import Consistency, Drt, Gaussian, SmoothMix
from smoothheads.errors import one_of
from smoothheads.recipes import benchmarks, methods, small, structures
from smoothheads.recipes.base import SIGMAS, Benchmark, Recipe, Setting
from smoothheads.recipes.digits import digits

__all__ = ["Recipe", "all_recipes", "get"]


def all_recipes() -> dict[str, Recipe]:
    """Every recipe by name, in reading order."""
    found = [digits(heads=5), digits(heads=1), small.cifar10_16px(heads=5), small.cifar10_16px(heads=1)]
    for benchmark in benchmarks.ALL:
        for method in methods.ALL:
            for sigma in SIGMAS:
                bench = benchmark(sigma)
                found += _variants(bench, method(bench.data, sigma))
    return {recipe.name: recipe for recipe in found}


def get(name: str) -> Recipe:
    recipes = all_recipes()
    if name not in recipes:
        raise one_of("recipe", name, recipes)
    return recipes[name]


def _variants(bench: Benchmark, setting: Setting) -> Iterator[Recipe]:
    """Everything on one network, on heads and on several; what the paper ablates also with its controls."""
    if not isinstance(setting.method, Drt):
        yield structures.single(bench, setting)
    yield structures.some(bench, setting)
    yield structures.dnns(bench, setting)
    if isinstance(setting.method, Gaussian | Consistency | SmoothMix):
        yield structures.heads(bench, setting)
    if isinstance(setting.method, Gaussian):
        yield structures.heads(bench, setting, scaled=True)
        yield structures.some(bench, setting, cut="input")
        yield structures.single_two_draws(bench, setting)
        yield structures.dnns(bench, setting, two_draws=True)
