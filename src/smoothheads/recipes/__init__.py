"""Named settings. The command line starts from one of them and overrides fields."""

from __future__ import annotations

from smoothheads.errors import one_of
from smoothheads.recipes import cifar10, digits, others
from smoothheads.recipes.base import Recipe

__all__ = ["Recipe", "all_recipes", "get"]


def all_recipes() -> dict[str, Recipe]:
    """Every recipe by name, in reading order."""
    found = [digits.digits(heads=5), digits.digits(heads=1)]
    found += [cifar10.small_study(heads=5), cifar10.small_study(heads=1)]
    for sigma in cifar10.SIGMAS:
        found += [others.mnist_gaussian(sigma)]
    for sigma in cifar10.SIGMAS:
        found += [cifar10.gaussian_some(sigma), cifar10.gaussian_single(sigma)]
        found += [cifar10.gaussian_uniform(sigma), cifar10.gaussian_uniform(sigma, cut="input")]
    for sigma in cifar10.SIGMAS:
        found += [others.imagenet_gaussian(sigma)]
    found += [others.imagenet_some()]
    return {recipe.name: recipe for recipe in found}


def get(name: str) -> Recipe:
    recipes = all_recipes()
    if name not in recipes:
        raise one_of("recipe", name, recipes)
    return recipes[name]
