"""The recipes by name, and what they are made of: base methods with published values, and the setups.

A single network has one head. SOME has several on one trunk, which teach each other. The controls have the
same heads without teaching, or heads that share nothing, which is an ensemble trained in one run. The
ensemble of the field, networks trained separately and joined, is a single network's recipe with the option
`--members` of `smoothheads train`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, TypeVar

from typing_extensions import Doc

from smoothheads.errors import ConfigError, one_of
from smoothheads.objectives import METHODS
from smoothheads.training.config import RunConfig

Function = TypeVar("Function", bound=Callable[..., RunConfig])

ARGUMENTS = {
    "sigma": "Standard deviation of the noise, for pixels in [0, 1].",
    "method": "Base method, with its published values: see `smoothheads info methods`.",
    "heads": "How many heads (the paper's L).",
    "min_draws": "Noise draws per image (the paper's m), if the method has fewer; SOME has 2.",
}
"""The help of the arguments that recipes share, by their names."""
RECIPES: dict[str, Recipe] = {}
SIGMAS = (0.25, 0.5, 1.0)  # at which values are published


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
        """Returns the first line of the docstring."""
        return (self.function.__doc__ or "").partition("\n")[0].rstrip(".")

    @cached_property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """Returns the arguments with types, help and defaults; the command line has an option for each."""
        found = inspect.signature(self.function, eval_str=True).parameters
        helped = {
            key: Annotated[found[key].annotation, Doc(ARGUMENTS[key])] for key in found if key in ARGUMENTS
        }
        return {key: each.replace(annotation=helped.get(key, each.annotation)) for key, each in found.items()}

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


@dataclass(frozen=True)
class Published:
    """Where the values of a base method on one benchmark were read, and what they are.

    What no source that we could read gives is marked in `source` as recalled, or as chosen here.
    """

    source: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the method that differ from its defaults; a tuple is for sigma 0.25, 0.5 and 1."""
    train: Mapping[str, Any] = field(default_factory=dict)
    """Fields of TrainConfig in which the method leaves the benchmark's schedule."""

    def at(self, sigma: float) -> dict[str, Any]:
        """Returns the fields for sigma, or those for the nearest sigma that has published ones."""
        # Sigma may be 0: a network for denoised smoothing is trained without noise.
        nearest = min(range(3), key=lambda k: abs(math.log(SIGMAS[k] / max(sigma, 1e-9))))
        return {key: v[nearest] if isinstance(v, tuple) else v for key, v in self.values.items()}


DRT = Published(
    "recalled only, check before relying: both weights; Yang et al. fine-tune trained networks, so start "
    "from such an ensemble (--init)",
)


def with_method(
    config: RunConfig, name: str, published: Mapping[str, Published], min_draws: int = 1
) -> RunConfig:
    """Returns `config` with another base method, at its published values if there are any.

    Args:
        config: The benchmark, with its sigma and the heads that the method will train.
        name: The name of the method.
        published: The values of the methods on this benchmark; others start from their defaults.
        min_draws: The least number of noise draws per image (the paper's m).
    """
    entry = published.get(name, Published("its defaults"))
    method = METHODS.get(name)(**entry.at(config.train.sigma))
    changes: dict[str, Any] = {f"train.{key}": value for key, value in entry.train.items()}
    config = config.with_overrides(changes | {"objective.method": method})
    if method.draws < min_draws:
        config = config.with_overrides({"objective.method.draws": min_draws})
    return config


def taught(config: RunConfig, heads: int, teaching: Mapping[str, Any] | None = None) -> RunConfig:
    """Returns SOME: heads that teach each other in a circle, with the cosine constraint.

    Args:
        config: The single network.
        heads: The paper's L.
        teaching: Fields of TeachingConfig that differ from our defaults, such as lambda_last.
    """
    return config.with_overrides({"model.heads": heads, "objective.teaching": teaching or {}})


def untaught(config: RunConfig, heads: int) -> RunConfig:
    """Returns the control for SOME: heads with uniform weights and without the cosine constraint."""
    weights = {"objective.teaching.weights": "uniform", "objective.diversity.weight": 0.0}
    return config.with_overrides({"model.heads": heads} | weights)


def joint(config: RunConfig) -> RunConfig:
    """Returns an ensemble that is trained in one run: untaught heads that share nothing.

    The learning rate is raised and the decay lowered by the number of networks, which undoes the mean over
    heads. Where a network's loss does not depend on the others, this equals training each by itself, except
    that they see the same batches and noise. Other methods are refused, unless they need several networks.
    """
    method, heads = config.objective.method, config.model.heads
    if not method.independent_heads and method.min_heads == 1:
        raise ConfigError(
            f"Train the networks separately (--members {heads}): in a joint run, the attacks and choices of "
            f"images of {method.name} would be those of all networks together."
        )
    decay = config.train.weight_decay / heads
    return fast_heads(config).with_overrides({"model.cut": "input", "train.weight_decay": decay})


def fast_heads(config: RunConfig) -> RunConfig:
    """Returns `config` with heads that learn L times as fast as the trunk.

    The objective is a mean over L heads (eq. 6), which divides the gradient of each by L; this undoes it.
    """
    return config.with_overrides({"train.head_lr_scale": float(config.model.heads)})
