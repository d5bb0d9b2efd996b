"""All settings of a certification in one flat dataclass: the same in Python, on the command line and in JSON.

Parameters that belong to some budgets or engines only are unset at first, so that they have the default of
the one that is chosen. A parameter that the chosen one does not have is refused. Torch is not imported here.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Final, Literal

from smoothheads.certify.algorithm import check_alpha
from smoothheads.certify.budgets import BUDGETS, Budget
from smoothheads.certify.engines import ENGINES, Engine
from smoothheads.config.check import Count, Natural, check_fields, check_sigma
from smoothheads.errors import ConfigError, suggest
from smoothheads.noise import NOISES, NoiseLaw
from smoothheads.registry import Registry

Option = bool | int | float | str
_KINDS: Final[Mapping[str, Registry[Any]]] = {"budget": BUDGETS, "noise": NOISES, "engine": ENGINES}


_UNSET: Final = {"unless_default": True}
"""Of fields that belong to some budgets or engines: JSON leaves them out until they are set."""


@dataclass(frozen=True, kw_only=True)
class CertifyConfig:
    """Settings of a certification run; the network and the data are not among them."""

    sigma: float
    """Standard deviation of the noise per pixel, whatever its law (default: that of the training)."""
    alpha: float = 0.001
    """Probability that a certificate is wrong, per image."""
    aggregation: str = "ensemble"
    """The base classifier that is certified: ensemble (mean logits), softmax (mean probabilities), vote,
    margin (the head with the largest margin decides), weighted (learned), head-K, prefix-K or consensus-K."""
    seed: Natural | None = None
    """Random seed of the noise, to be chosen after the weights are fixed. If omitted, certify draws and
    records one; predict uses a secret one."""
    block: Count = 100
    """Samples per block of noise and per forward pass; part of the noise's key, so that results depend on
    nothing else. More are faster for small networks."""
    budget: str = "fixed"
    """How many samples an image gets: fixed (n of every image, as in published tables), table (which RADII
    are certified), radius (within TOLERANCE of the fixed radius) or anytime (until TARGET or SECONDS)."""
    n0: Count | None = field(default=None, metadata=_UNSET)
    """Samples that choose the class; they never enter the bound (default: 100; budget radius has its own)."""
    n: Natural | None = field(default=None, metadata=_UNSET)
    """Fresh samples, at most, that bound its probability (default: 100,000; 0 for no limit with anytime)."""
    radii: tuple[float, ...] | None = field(default=None, metadata=_UNSET)
    """Radii of budget table (default: steps of 0.25 from 0 up to what n can show)."""
    tolerance: float | None = field(default=None, metadata=_UNSET)
    """Fraction of the radius that budget radius may lose on average (default: 0.05)."""
    floor: float | None = field(default=None, metadata=_UNSET)
    """Radius, in sigmas, that budget radius may lose in any case (default: 0.01)."""
    target: float | None = field(default=None, metadata=_UNSET)
    """Radius at which budget anytime stops."""
    seconds: float | None = field(default=None, metadata=_UNSET)
    """Time after which budget anytime stops, for every image."""
    label_aware: bool = field(default=False, metadata=_UNSET)
    """Budgets table and radius test the true label instead of a chosen class: for evaluation only."""
    noise: str = "grid"
    """The noise law, whose theorem decides the norm of the radii: grid (exact integers) and gaussian l2,
    uniform and laplace l1."""
    recheck: float = 0.02
    """Fraction of the samples, chosen in secret, that the network evaluates a second time in other batches;
    if its logits differ then, it is refused. 0 switches this off."""
    engine: str = "torch"
    """What computes the network: torch, openvino (faster, with its extra) or onnxruntime."""
    precision: Literal["float32", "bfloat16", "float16", "int8"] = "float32"
    """Another precision is another base classifier. float16 is for cuda; int8 for openvino, quantised with
    noisy training images at sigma."""
    device: str = field(default="cpu", metadata=_UNSET)
    """Device of engine torch; cuda is untested."""
    threads: Count = 1
    """Threads of the engine in one process."""
    options: dict[str, Option] = field(default_factory=dict, hash=False, metadata={"unless_default": True})
    """Parameters of budgets, noise laws and engines of other packages."""

    def __post_init__(self) -> None:
        check_fields(self)
        check_sigma(self.sigma)
        check_alpha(self.alpha)
        if not 0 <= self.recheck <= 1:
            raise ConfigError(f"recheck is {self.recheck:g}; choose a fraction from 0 to 1, such as 0.02.")
        if self.radii is not None:
            object.__setattr__(self, "radii", tuple(self.radii))
        # A parameter must belong to the chosen budget, noise or engine.
        known = {name for kind in _KINDS for name in _parameters(kind, getattr(self, kind))}
        for name in (*_set(self), *self.options):
            if name not in known or (name in self.options and name in _FIELDS):
                raise _misplaced(name, self)
        # The engine must compute in this precision, on this device.
        if self.precision not in ENGINES.get(self.engine).precisions:
            able = [name for name, engine in ENGINES.items() if self.precision in engine.precisions]
            raise ConfigError(
                f"Engine {self.engine} does not compute {self.precision}: choose engine {' or '.join(able)}."
            )
        if self.precision == "float16" and self.device == "cpu":
            raise ConfigError("float16 needs device cuda: use float32 or bfloat16 on a processor.")
        # Budget and noise law check their own parameters.
        _ = self.plan, self.law

    @cached_property
    def plan(self) -> Budget:
        """The budget with its parameters."""
        budget: Budget = BUDGETS.get(self.budget)(**self._arguments("budget"))
        return budget

    @cached_property
    def law(self) -> NoiseLaw:
        """The noise law with its parameters."""
        law: NoiseLaw = NOISES.get(self.noise)(**self._arguments("noise"))
        return law

    def resolved(self) -> CertifyConfig:
        """Returns a copy that spells out the defaults of its budget and engine, for the manifest."""
        defaults = dict(_parameters("engine", self.engine)) | {
            name: getattr(self.plan, name) for name in _parameters("budget", self.budget)
        }
        unset = _OPTIONAL.keys() - _set(self)
        return replace(self, **{name: value for name, value in defaults.items() if name in unset})

    def seeded(self) -> CertifyConfig:
        """Returns a copy with a seed: the given one, or one that nobody could know before."""
        return self if self.seed is not None else replace(self, seed=secrets.randbits(63))

    def changed(self, **settings: Any) -> CertifyConfig:
        """Returns a copy with other settings; raises ConfigError for one that no chosen component has.

        Where a budget or an engine is exchanged, parameters of the old one that were set to other values than
        its defaults are kept if the new one has them, and dropped otherwise.
        """
        options = {name: value for name, value in self.options.items() if name not in settings}
        # Where a component is exchanged, fields that the new one does not have are unset.
        for kind in ("budget", "engine"):
            old, new = getattr(self, kind), settings.get(kind, getattr(self, kind))
            if new != old:
                usual, kept = _parameters(kind, old), _parameters(kind, new)
                for name in usual.keys() & _OPTIONAL.keys():
                    if name not in kept or getattr(self, name) == usual[name]:
                        settings.setdefault(name, _OPTIONAL[name])
                options = {name: each for name, each in options.items() if name in kept or name not in usual}
        # What is no field is a parameter of somebody else's component; __post_init__ checks it.
        options |= {name: settings.pop(name) for name in settings.keys() - _FIELDS}
        return replace(self, **{"options": options} | settings)

    def _arguments(self, kind: str) -> dict[str, Any]:
        names = _parameters(kind, getattr(self, kind))
        given = {name: getattr(self, name) for name in _set(self) if name in names}
        return given | {name: self.options[name] for name in names if name in self.options}


_FIELDS: Final = frozenset(each.name for each in fields(CertifyConfig))
_OPTIONAL: Final[Mapping[str, Any]] = {
    each.name: each.default
    for each in fields(CertifyConfig)
    if each.metadata.get("unless_default") and each.name != "options"
}
"""The fields that belong to some budgets or engines, with the values that mean "not set"."""


def _parameters(kind: str, name: str) -> Mapping[str, Any]:
    """Returns the parameters of a component with their defaults."""
    if not isinstance(name, str):
        raise ConfigError(f"{kind} is {name!r}; give its name, such as {_KINDS[kind].names()[0]}.")
    component = _KINDS[kind].get(name)
    if kind == "engine":
        engine: type[Engine] = component
        return engine.parameters
    return {each.name: each.default for each in fields(component)}


def _set(config: CertifyConfig) -> list[str]:
    return [name for name, unset in _OPTIONAL.items() if getattr(config, name) != unset]


def _misplaced(name: str, config: CertifyConfig) -> ConfigError:
    """Returns the error for a parameter that the chosen budget, noise and engine do not have."""
    if name in config.options and name in _FIELDS:
        return ConfigError(f"Set {name} itself instead of options.{name}.")
    for kind, registry in _KINDS.items():
        owners = [owner for owner in registry.names() if name in _parameters(kind, owner)]
        if owners:
            chosen = getattr(config, kind)
            return ConfigError(
                f"{name} belongs to {kind} {' and '.join(owners)}, not to {chosen}: "
                f"drop it, or choose {kind} {' or '.join(owners)}."
            )
    known = _FIELDS.union(*(_parameters(kind, getattr(config, kind)) for kind in _KINDS))
    return ConfigError(f"A certification has no setting {name!r}: {suggest(name, known)}")
