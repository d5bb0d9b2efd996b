"""What certification is told: sigma, alpha, aggregation and seed, and components for budget, noise and engine.

Nothing heavy is imported here.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from smoothheads.certify.budgets.base import BUDGETS, Budget
from smoothheads.certify.budgets.fixed import FixedBudget
from smoothheads.certify.engines.base import ENGINES, EngineConfig
from smoothheads.certify.engines.torch import Torch
from smoothheads.config.check import LEAST_ALPHA, Count, Natural, at_least, between, check_fields, check_sigma
from smoothheads.errors import ConfigError, suggest
from smoothheads.noise.base import NoiseLaw
from smoothheads.noise.laws import GridGaussian
from smoothheads.registry import as_component

_COMPONENTS: Final = {"budget": Budget, "noise": NoiseLaw, "engine": EngineConfig}


@dataclass(frozen=True, kw_only=True)
class CertifyConfig:
    """What a certification run was told, the network and the data apart."""

    sigma: float
    """Standard deviation of the noise per pixel, whatever its law."""
    alpha: float = 0.001
    """Probability that a certificate is wrong, per image."""
    budget: Budget = field(default_factory=FixedBudget)
    """How many samples an image gets."""
    aggregation: str = "ensemble"
    """The base classifier that is certified: ensemble (mean logits), softmax (mean probabilities), vote,
    margin (the surest head decides), weighted (learned), head-K, prefix-K or consensus-K."""
    seed: Natural | None = None
    """Key of the noise, to be chosen after the weights are fixed. None: drawn at the start; a certification
    records it, a prediction keeps it secret."""
    noise: NoiseLaw = field(default_factory=GridGaussian)
    """The law of the noise, whose theorem decides the norm of the radii."""
    block: Count = 100
    """Samples per block of noise; part of its key, so that results depend on nothing else."""
    engine: EngineConfig = field(default_factory=Torch)
    """What computes the network."""

    def __post_init__(self) -> None:
        for kind, base in _COMPONENTS.items():
            object.__setattr__(self, kind, as_component(getattr(self, kind), base))
        check_sigma(self.sigma)
        between("alpha", self.alpha, 0, 0.5)
        at_least("alpha", self.alpha, LEAST_ALPHA)
        check_fields(self)
        if getattr(self.engine, "lazy_consensus", False) and not self.aggregation.startswith("consensus-"):
            raise ConfigError(
                "an aggregation consensus-K with lazy_consensus",
                repr(self.aggregation),
                "for example --aggregation consensus-2",
            )

    @classmethod
    def of(cls, sigma: float, **settings: Any) -> CertifyConfig:
        """From settings without their components: `CertifyConfig.of(0.25, budget="table", n=10_000)`."""
        return cls(sigma=sigma).changed(**settings)

    def changed(self, **settings: Any) -> CertifyConfig:
        """A copy with other settings, of its own or of its components. A component that is given by its name
        takes over what its predecessor was told (other than its defaults), as far as it has such fields.

        Raises ConfigError for a setting that none of the chosen components has.
        """
        parts = {kind: _chosen(kind, getattr(self, kind), settings.pop(kind, None)) for kind in _COMPONENTS}
        for kind, part in parts.items():
            parts[kind] = replace(part, **{key: settings.pop(key) for key in _names(part) & settings.keys()})
        own = {key: settings.pop(key) for key in _names(self) & settings.keys()}
        for key in settings:
            known = {name for part in (self, *parts.values()) for name in _names(part)}
            error = ConfigError("a setting of a certification", repr(key), suggest(key, known))
            raise misplaced(key, parts) or error
        return replace(self, **own, **parts)

    @property
    def components(self) -> dict[str, Any]:
        return {kind: getattr(self, kind) for kind in _COMPONENTS}

    @property
    def device(self) -> str:
        """Where the network is computed."""
        return str(getattr(self.engine, "device", "cpu"))

    def seeded(self) -> CertifyConfig:
        """With a seed: the given one, or one that nobody could know before."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(63))

    @classmethod
    def upgrade(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Reads settings without their components: what version 1 wrote, and what is short to write."""
        return _nested(data) if data.keys() - _names(cls) else data


def _names(part: Any) -> set[str]:
    return {one.name for one in fields(part)}


def _chosen(kind: str, before: Any, wanted: Any) -> Any:
    """The component that is wanted: itself, or by its name with what its predecessor was told."""
    if wanted is None:
        return before
    if not isinstance(wanted, str):
        return as_component(wanted, _COMPONENTS[kind])
    component = before.registry.get(wanted)
    usual = type(before)()
    told = {name for name in _names(before) if getattr(before, name) != getattr(usual, name)}
    return component(**{name: getattr(before, name) for name in _names(component) & told})


def misplaced(key: str, parts: Mapping[str, Any]) -> ConfigError | None:
    """The error for a setting of another budget, noise or engine than the chosen `parts`; None if it is of
    these or of nobody."""
    if any(key in _names(part) for part in parts.values()):
        return None
    for kind, part in parts.items():
        others = [name for name, other in part.registry.items() if key in _names(other)]
        if others:
            remedy = f"drop {key}, or take {kind} {' or '.join(others)}"
            return ConfigError(
                f"{'an' if kind == 'engine' else 'a'} {kind} that uses {key}", repr(part.name), remedy
            )
    return None


_V1_ENGINE: Final = ("precision", "compile", "lazy_consensus", "graphs", "device", "threads")
_V1_BUDGET: Final = ("n0", "n", "bound", "radii", "tolerance", "price", "target", "label_aware")


def _nested(flat: dict[str, Any]) -> dict[str, Any]:
    """Settings sorted into their components. Version 1 wrote all that there were, so those that the chosen
    budget or engine ignored are left out; what is unknown otherwise stays, and is refused."""
    nested = dict(flat)
    if nested.pop("grouped", "off") != "off":
        raise ConfigError("heads one by one", "grouped heads", "certify again, or use version 0.1")
    complete = nested.keys() >= {*_V1_BUDGET, *_V1_ENGINE}
    for kind, registry, usual in (("budget", BUDGETS, "fixed"), ("engine", ENGINES, "torch")):
        said = nested.pop(kind, usual)
        part = dict(said) if isinstance(said, dict) else {"name": said}
        fields_of = _names(registry.get(str(part.get("name", usual))))
        part |= {key: nested.pop(key) for key in fields_of & nested.keys()}
        nested[kind] = part
    ignored = {*_V1_BUDGET, *_V1_ENGINE} if complete else set()
    known = {*_names(CertifyConfig), *_V1_BUDGET, *_V1_ENGINE}
    for key in nested.keys() - known:
        raise ConfigError("a setting of a certification", repr(key), suggest(key, known))
    return {key: value for key, value in nested.items() if key not in ignored}
