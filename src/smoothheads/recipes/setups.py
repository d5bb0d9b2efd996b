"""What recipes are made of: a base method with its published values, and the setups that are compared.

A single network has one head. SOME has several on one trunk, which teach each other. The controls have the
same heads without teaching, or heads that share nothing, which is an ensemble trained in one run. The
ensemble of the field, networks trained separately and joined, is a single network's recipe with the option
`--members` of `smoothheads train`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from typing_extensions import Doc

from smoothheads.errors import ConfigError
from smoothheads.objectives.method import METHODS, Method
from smoothheads.training.config import RunConfig

SIGMAS = (0.25, 0.5, 1.0)  # at which values are published

Sigma = Annotated[float, Doc("Standard deviation of the noise, for pixels in [0, 1].")]
MethodName = Annotated[str, Doc("Base method, with its published values: see `smoothheads info methods`.")]
Heads = Annotated[int, Doc("How many heads (the paper's L).")]
MinDraws = Annotated[int, Doc("Noise draws per image (the paper's m), if the method has fewer; SOME has 2.")]


@dataclass(frozen=True)
class Published:
    """A base method's values on one benchmark, and where they were read.

    What no source that we could read gives is marked in `source` as recalled, or as chosen here.
    """

    method: Method | tuple[Method, Method, Method]
    """The settings; three if they differ at sigma 0.25, 0.5 and 1."""
    source: str
    train: Mapping[str, Any] = field(default_factory=dict)
    """Fields of TrainConfig in which the method leaves the benchmark's schedule."""

    def at(self, sigma: float) -> Method:
        """Returns the settings for sigma, or those for the nearest sigma that has published ones."""
        if isinstance(self.method, Method):
            return self.method
        # Sigma may be 0: a network for denoised smoothing is trained without noise.
        nearest = min(SIGMAS, key=lambda known: abs(math.log(known / max(sigma, 1e-9))))
        return self.method[SIGMAS.index(nearest)]


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
    entry = published.get(name) or Published(METHODS.get(name)(), "its defaults")
    method = entry.at(config.train.sigma)
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
    return config.with_overrides(
        {
            "model.heads": heads,
            "objective.teaching.weights": "uniform",
            "objective.diversity.weight": 0.0,
        }
    )


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
    return config.with_overrides(
        {
            "model.cut": "input",
            "train.head_lr_scale": float(heads),
            "train.weight_decay": config.train.weight_decay / heads,
        }
    )
