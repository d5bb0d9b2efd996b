"""Training and evaluation mode, borrowed and given back."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@contextmanager
def borrowed_mode(model: nn.Module, *, training: bool) -> Iterator[None]:
    """The whole model is in that mode inside; afterwards, also after an error, each module is as it was."""
    before = [(module, module.training) for module in model.modules()]
    model.train(training)
    try:
        yield
    finally:
        for module, was_training in before:
            module.training = was_training
