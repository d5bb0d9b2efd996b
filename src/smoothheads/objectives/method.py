"""The interface of a base training method: a frozen dataclass whose fields are its settings, and a call.

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
    """The input of a method in one optimiser step; images are pixels in [0, 1], without noise."""

    model: nn.Module
    """Gives logits [L, N, C] of a batch: a MultiHead."""
    images: Tensor
    labels: Tensor
    sigma: float
    generator: torch.Generator
    epoch: int
    """Counted from 1."""
    prepared: Tensor | None = None
    """The rows of these images in what `Method.prepare` returned; None if it returned nothing."""


class Losses(NamedTuple):
    """The result of a method: the loss of every head on every image, and how hard each head finds it."""

    per_sample_LN: Tensor
    smoothed_LN: Tensor
    """Mean cross-entropy over the draws (eq. 4 of the SOME paper); teaching judges easiness by it."""
    unweighted_LN: Tensor | None = None
    """A part of the loss that teaching weights leave alone."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """The means that a method can use before training begins."""

    dataset: Dataset
    """The training images."""
    device: torch.device
    open_model: Callable[[str], nn.Module]
    """The network of a checkpoint, by its folder."""
    on_progress: Callable[[int, int], None]
    """Receives how many of how many units of work are done."""


class Curriculum(Protocol):
    """Chooses the images that the epochs show; its state is plain tensors, saved for a resume."""

    def refresh(self, epoch: int, hit_fractions: Callable[[int], Tensor]) -> None:
        """Updates the choice at the start of every epoch.

        `hit_fractions(draws)` measures the fraction of draws on which the network, as it stands, classifies
        each training image correctly.
        """
        ...

    def order(self, epoch: int, generator: torch.Generator) -> Tensor | None:
        """Returns the positions of the epoch's images, as many as there are; None shows every image once."""
        ...

    def state_dict(self) -> dict[str, Tensor]: ...

    def load_state_dict(self, state: dict[str, Tensor]) -> None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Method(ABC):
    """A base method. It never reduces over heads or images, so that teaching weights compose with it.

    Defaults are the published values for CIFAR-10 at sigma 0.25. Fields at None follow the preset.
    """

    name: ClassVar[str]
    registry: ClassVar[Registry[Any]] = METHODS
    min_draws: ClassVar[int] = 1
    min_heads: ClassVar[int] = 1
    min_classes: ClassVar[int] = 1
    trains_classifier: ClassVar[bool] = True
    """Whether the network gives logits; a denoiser gives images."""
    independent_heads: ClassVar[bool] = False
    """Whether a head's loss ignores the other heads; it does not where heads share an attack."""

    draws: int = 1
    """Noise draws per image in one step (the paper's m)."""

    @property
    def trained_draws(self) -> int:
        """Returns the noise draws of an image that a step trains on; a batch of draws counts these."""
        return self.draws

    def __post_init__(self) -> None:
        at_least("draws", self.draws, self.min_draws)
        check_fields(self)
        self.check()

    def check(self) -> None:  # noqa: B027
        """Raises ConfigError for settings that contradict each other; ranges are checked by their types."""

    @abstractmethod
    def __call__(self, step: Step) -> Losses:
        """Returns the losses of one step."""

    def prepare(self, preparation: Preparation) -> Tensor | None:  # noqa: ARG002
        """Returns what the method needs to know about the training images [images, ...]; called once."""
        return None

    def curriculum(self, images: int) -> Curriculum | None:  # noqa: ARG002
        """Returns how the epochs choose among that many training images; None shows every image once."""
        return None

    def require(self, *, heads: int | None = None, classes: int | None = None) -> None:
        """Raises ConfigError for a network or data that the method cannot train on."""
        if heads is not None and heads < self.min_heads:
            raise ConfigError(
                f"{self.name} needs {self.min_heads} heads or more, not {heads}: raise model.heads, or "
                "choose another method."
            )
        if classes is not None and classes < self.min_classes:
            raise ConfigError(
                f"{self.name} compares the likeliest classes and needs {self.min_classes} of them or more, "
                f"not {classes}: choose another method."
            )
