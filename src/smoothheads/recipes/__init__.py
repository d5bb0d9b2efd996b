"""Recipes: functions that return a RunConfig and say where its values come from.

The name of a recipe is the name of its function with hyphens: `cifar10-resnet110-some` is
`cifar10.cifar10_resnet110_some`. Recipes call each other; to change anything else, call `with_overrides` on
what they return. A package of your own adds recipes with the decorator `recipe`.
"""

from smoothheads.recipes import cifar10, denoise, digits, imagenet, mnist, setups
from smoothheads.recipes.setups import RECIPES, Recipe, find, get, names, recipe

__all__ = [
    "RECIPES",
    "Recipe",
    "cifar10",
    "denoise",
    "digits",
    "find",
    "get",
    "imagenet",
    "mnist",
    "names",
    "recipe",
    "setups",
]
