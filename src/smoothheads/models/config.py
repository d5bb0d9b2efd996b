"""The settings of a network."""

from __future__ import annotations

from dataclasses import dataclass, field

from smoothheads.config.check import Count, Positive, check_fields
from smoothheads.errors import ConfigError

OWN = "own"  # arch and cut of a network that has no name


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelConfig:
    arch: str = "resnet8"
    """Architecture: see `smoothheads info architectures`."""
    heads: Count = 1
    """L: 1 is a single network; SOME uses 5."""
    cut: str = "stage2"
    """Where the shared trunk ends; `input` makes the heads separate networks."""
    normalize: bool = True
    """Subtract the data's mean and divide by its standard deviation, inside the network, after the noise."""
    normalize_heads: bool = False
    """Each head normalises for itself, as networks do that were trained apart; needs the cut `input`."""

    denoiser_sigma: Positive | None = field(default=None, metadata={"unless_default": True})
    """Noise level for which a `Denoiser` of ours stands in front of the network, if one does."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.normalize_heads and not (self.normalize and self.cut == "input"):
            raise ConfigError(
                "Only separate networks can normalise for themselves: with model.normalize_heads set "
                f"model.normalize to True (now {self.normalize}) and model.cut to 'input' (now {self.cut!r})."
            )
