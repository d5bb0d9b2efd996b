"""An engine samples one function: the votes of every rule on noisy copies of an image, block by block."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothheads.noise import Noise
from smoothheads.types import Phase, Pixels, Votes


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """`count` noisy copies of an image, from the first of `block` on into the blocks that follow."""

    image: Pixels
    index: int
    phase: Phase
    block: int
    count: int


class Engine(Protocol):
    """The certificate belongs to exactly the function that the engine computes, so it describes itself."""

    @property
    def rules(self) -> tuple[str, ...]: ...

    @property
    def classes(self) -> int: ...

    @property
    def noise(self) -> Noise: ...

    @property
    def blocks_per_pass(self) -> int:
        """How many blocks the network computes at once."""
        ...

    def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
        """Votes for every request. Blocks are computed whole and every pass holds the same number of them,
        whose logits do not depend on each other by one bit, so that votes depend on the key alone. Raises
        SoundnessError when that does not hold, or when a logit is not finite."""
        ...

    def votes(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Votes:
        """`votes_of` one request."""
        ...

    def scores(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> NDArray[np.float64]:
        """Probabilities [count, C] that the ensemble gives the classes: the softmax of its mean logits.
        Otherwise as `votes`."""
        ...

    def fingerprint(self) -> str:
        """Hash of everything the function is made of; equal before and after means that it kept still."""
        ...

    def describe(self) -> dict[str, Any]:
        """What the manifest records: engine, precision, device, threads and whatever else tells this function
        from another one."""
        ...
