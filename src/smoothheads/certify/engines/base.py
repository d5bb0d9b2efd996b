"""An engine samples one function: the votes of every rule on noisy copies of an image, block by block."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from smoothheads.noise import Noise
from smoothheads.types import Phase, Pixels, Votes


class Engine(Protocol):
    """The certificate belongs to exactly the function that the engine computes, so it describes itself."""

    @property
    def rules(self) -> tuple[str, ...]: ...

    @property
    def classes(self) -> int: ...

    @property
    def noise(self) -> Noise: ...

    def votes(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Votes:
        """Votes on `count` copies, from the first of `block` on into the blocks that follow. Each block is
        computed whole and in one pass of its own, so that votes depend on the key alone. Raises
        SoundnessError when a logit is not finite."""
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
