"""Recipes: functions that return a RunConfig and say where its values come from.

The name of a recipe is the name of its function with hyphens: `cifar10-resnet110-some` is
`cifar10.cifar10_resnet110_some`. Recipes call each other; to change anything else, call `with_overrides` on
what they return. A package of your own adds recipes with the decorator `recipe`.
"""

from smoothheads.recipes import cifar10 as cifar10
from smoothheads.recipes import denoise as denoise
from smoothheads.recipes import digits as digits
from smoothheads.recipes import imagenet as imagenet
from smoothheads.recipes import mnist as mnist
from smoothheads.recipes import setups as setups
from smoothheads.recipes.setups import RECIPES as RECIPES
from smoothheads.recipes.setups import Recipe as Recipe
from smoothheads.recipes.setups import find as find
from smoothheads.recipes.setups import get as get
from smoothheads.recipes.setups import names as names
from smoothheads.recipes.setups import recipe as recipe
