"""An aggregation: the class with the largest median logit over the heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from torch import Tensor


class Median:
    """One head that errs wildly does not move it."""

    name: ClassVar[str] = "median"

    def classes(self, logits_LNC: Tensor) -> Tensor:
        return logits_LNC.median(0).values.argmax(-1)
