"""What a base training method is: one frozen dataclass whose fields are its settings, and a call.

A method of somebody else derives from `Method`, has a `name` and registers itself with `METHODS.register` or
an entry point of the group `smoothheads.methods`. Shape letters: L heads, M noise draws per image, N images,
C classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from smoothheads.config.check import at_least, check_fields
from smoothheads.errors import ConfigError
from smoothheads.registry import Registry

if TYPE_CHECKING:
    import torch
    from torch import Tensor, nn

    from smoothheads.data import Dataset

METHODS: Registry[type[Method]] = Registry("method", "smoothheads.methods")


@dataclass(frozen=True, slots=True)
class Step:
    """What a method sees in one optimiser step; images are pixels in [0, 1], without noise."""

    model: nn.Module
    """Logits [L, N, C] of a batch: a MultiHead."""
    images: Tensor
    labels: Tensor
    sigma: float
    generator: torch.Generator
    epoch: int
    """Counted from 1."""
    prepared: Tensor | None = None
    """The rows of these images in what `Method.prepare` gave; none if it gave nothing."""


class Losses(NamedTuple):
    """A method's answer: the loss of every head on every image, and how hard each head finds the image."""

    per_sample_LN: Tensor
    smoothed_LN: Tensor
    """Mean cross-entropy over the draws (the paper's smoothed loss); teaching judges easiness by it."""
    unweighted_LN: Tensor | None = None
    """A part of the loss that teaching weights leave alone."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What a method can use before training begins."""

    dataset: Dataset
    """The training images."""
    device: torch.device
    open_model: Callable[[str], nn.Module]
    """The network of a checkpoint, by its folder."""
    on_progress: Callable[[int, int], None]
    """Told how many of how many units of work are done."""


class Curriculum(Protocol):
    """Which images the epochs show; what it remembers is plain tensors, saved for a resume."""

    def refresh(self, epoch: int, hit_fractions: Callable[[int], Tensor]) -> None:
        """At the start of every epoch. `hit_fractions(draws)` measures, by the network as it stands, each
        training image's share of right answers under that many draws."""
        ...

    def order(self, epoch: int, generator: torch.Generator) -> Tensor | None:
        """Positions of the epoch's images, as many as there are; none: every image once, in random order."""
        ...

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Method(ABC):
    """A base method. It never reduces over heads or images, so that teaching weights compose with it.

    Defaults are the published values for CIFAR-10 at sigma 0.25. Fields at none follow the preset.
    """

    name: ClassVar[str]
    registry: ClassVar[Registry[Any]] = METHODS
    least_draws: ClassVar[int] = 1
    least_heads: ClassVar[int] = 1
    least_classes: ClassVar[int] = 1
    trains_classifier: ClassVar[bool] = True
    """Whether the network gives logits; a denoiser gives images."""
    heads_apart: ClassVar[bool] = False
    """Whether a head's loss does not depend on the other heads, as it does where an attack is shared."""

    draws: int = 1
    """Noise draws per image in one step (the paper's m)."""

    @property
    def trained_draws(self) -> int:
        """Noise draws of an image that a step trains on: what a batch of draws counts."""
        return self.draws

    def __post_init__(self) -> None:
        at_least("draws", self.draws, self.least_draws)
        check_fields(self)
        self.check()

    def check(self) -> None:  # noqa: B027
        """Raises ConfigError for settings that cannot be, beyond the ranges that their types say."""

    @abstractmethod
    def __call__(self, step: Step) -> Losses:
        """The losses of one step."""

    def prepare(self, preparation: Preparation) -> Tensor | None:  # noqa: ARG002
        """What the method wants to know about every training image [images, ...], computed once per run."""
        return None

    def curriculum(self, images: int) -> Curriculum | None:  # noqa: ARG002
        """How the epochs choose among that many training images; none: every image once."""
        return None

    def require(self, *, heads: int | None = None, classes: int | None = None) -> None:
        """Raises ConfigError for a network or data that the method cannot train on."""
        if heads is not None and heads < self.least_heads:
            raise ConfigError(
                f"{self.least_heads} heads or more for {self.name}",
                str(heads),
                "raise heads, or choose another method",
            )
        if classes is not None and classes < self.least_classes:
            raise ConfigError(
                f"{self.least_classes} classes or more for {self.name}",
                str(classes),
                "it compares the likeliest classes",
            )
