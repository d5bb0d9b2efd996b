"""A step in micro-batches whose sum does not depend on which process computed which.

Every micro-batch starts from the same weights and the same BatchNorm buffers, and leaves a row: its share of
the gradient, of the change of the buffers, and of the numbers that are watched. The rows of all ranks are
added in the order of the micro-batches (`ranks.ordered_sum`), so one process, two ranks or eight take the
same step, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from smoothheads import ranks
from smoothheads.data.loader import Loader, Shards
from smoothheads.errors import ConfigError
from smoothheads.objectives.objective import StepTerms


def own_shards(count: int, rank: int, number: int) -> Shards:
    """The micro-batches of `rank` among `number` ranks, which must divide them."""
    if count % number:
        raise ConfigError(
            f"a number of micro-batches that {number} ranks divide",
            f"{count}",
            f"set --train.shards to {number} or a multiple of it"
            if count == 1
            else f"start as many ranks as divide {count}, or set --train.shards",
        )
    share = count // number
    return Shards(count, rank * share, (rank + 1) * share)


def require_images(loader: Loader) -> None:
    """Raises ConfigError where a step has fewer images than micro-batches."""
    least = min(loader.step_sizes())
    if least < loader.shards.count:
        raise ConfigError(
            f"at least one image for each of {loader.shards.count} micro-batches",
            f"steps of {least} images",
            "lower --train.shards or raise --train.batch",
        )


class StepRows:
    """The rows of one step, and what their sum does to the model.

    Whole numbers among the buffers, such as BatchNorm's count of batches, advance alike in every micro-batch.
    """

    def __init__(self, model: nn.Module) -> None:
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self._buffers = [(b, b.detach().clone()) for b in model.buffers()]
        self._rows: list[Tensor] = []
        self._watched: dict[str, int] = {}  # names and lengths

    @contextmanager
    def forward(self, share: float) -> Iterator[list[Tensor]]:
        """Inside, a micro-batch finds the buffers as they were before the step; afterwards the list has its
        share of their change."""
        moved: list[Tensor] = []
        self._reset()
        yield moved
        moved += [(b.detach() - old) * share for b, old in self._floating()]

    def add(self, moved: Sequence[Tensor], terms: StepTerms, loss: Tensor, share: float) -> None:
        """The row of a micro-batch: of its gradients, which are cleared, and the rest that was seen."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        watched = [values_L * share for values_L in terms.watched.values()]
        self._watched = {name: len(values_L) for name, values_L in terms.watched.items()}
        row = torch.cat([t.detach().flatten() for t in (*gradients, *moved, *watched, loss)])
        for parameter in self.parameters:
            parameter.grad = None
        if ranks.count() == 1 and self._rows:  # no need to keep them
            self._rows[0] += row
        else:
            self._rows.append(row)

    def finish(self) -> StepTerms:
        """Puts the sum of all ranks' rows into gradients and buffers, and gives the numbers of the step; if
        the loss is not finite, nothing is changed."""
        total = ranks.ordered_sum(torch.stack(self._rows))
        floating = self._floating()
        sizes = [p.numel() for p in self.parameters] + [b.numel() for b, _ in floating]
        parts = torch.split(total, [*sizes, *self._watched.values(), 1])
        loss, watched = parts[-1][0], parts[len(sizes) : -1]
        if torch.isfinite(loss):
            for parameter, part in zip(self.parameters, parts, strict=False):
                parameter.grad = torch.empty_like(parameter).copy_(part.view_as(parameter))
            for (buffer, old), part in zip(floating, parts[len(self.parameters) :], strict=False):
                buffer.data.copy_(old + part.view_as(old))
        else:
            self._reset()
        return StepTerms(loss, dict(zip(self._watched, watched, strict=True)))

    def _floating(self) -> list[tuple[Tensor, Tensor]]:
        return [(b, old) for b, old in self._buffers if b.is_floating_point()]

    def _reset(self) -> None:
        for buffer, old in self._buffers:
            buffer.data.copy_(old)  # not seen by autograd, for which other micro-batches may still wait
