"""The recipes by name, and the decorator that adds one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from smoothheads.errors import ConfigError, one_of
from smoothheads.recipes.setups import Published
from smoothheads.training.config import RunConfig

Function = TypeVar("Function", bound=Callable[..., RunConfig])

RECIPES: dict[str, Recipe] = {}


@dataclass(frozen=True)
class Recipe:
    """A function that returns a RunConfig, and where its values come from."""

    function: Callable[..., RunConfig]
    source: str
    methods: Mapping[str, Published]
    """Base methods with published values on this benchmark; others start from their defaults."""

    @property
    def name(self) -> str:
        return self.function.__name__.replace("_", "-")

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (self.function.__doc__ or "").partition("\n")[0].rstrip(".")

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The arguments with their types and defaults; the command line has an option for each."""
        return inspect.signature(self.function, eval_str=True).parameters

    def __call__(self, **arguments: Any) -> RunConfig:
        for name in arguments:
            if name not in self.parameters:
                raise one_of(f"argument of {self.name}", name, self.parameters)
        return self.function(**arguments)


def recipe(source: str, *, methods: Mapping[str, Published] | None = None) -> Callable[[Function], Function]:
    """Registers the decorated function as a recipe.

    Args:
        source: Where the values come from, and which of them are only recalled or chosen here.
        methods: The published values of base methods that the recipe looks up.
    """

    def register(function: Function) -> Function:
        made = Recipe(function, source, methods or {})
        if made.name in RECIPES:
            raise ConfigError(f"There is a recipe {made.name!r} already: rename the function.")
        RECIPES[made.name] = made
        return function

    return register


def names() -> list[str]:
    """Returns the names of all recipes; none is built."""
    return list(RECIPES)


def find(name: str) -> Recipe:
    """Returns the recipe of that name; raises ConfigError that suggests the nearest one."""
    if name in RECIPES:
        return RECIPES[name]
    # A name with all its words is nearer than one that is spelt alike: cifar10-some is not a single network.
    words = set(name.split("-"))
    alike = sorted((known for known in RECIPES if words <= set(known.split("-"))), key=len)
    raise one_of("recipe", name, alike[:1] or RECIPES)


def get(name: str, **arguments: Any) -> RunConfig:
    """Returns the settings of a recipe, as in `get("cifar10-resnet110-some", sigma=0.5)`."""
    return find(name)(**arguments)
