"""A training step in micro-batches whose sum does not depend on which process computed which.

Every micro-batch starts from the same weights and the same BatchNorm buffers, and leaves a row: its fraction
of the gradient, of the change of the buffers, of the metrics and of the loss. The rows of all ranks are added
in the order of the micro-batches (`ranks.ordered_sum`), so one process, two ranks or eight take the same
step, bit for bit. The gradient of a single micro-batch stays where autograd put it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from smoothheads import ranks
from smoothheads.data.loader import Shards
from smoothheads.errors import ConfigError
from smoothheads.objectives.objective import StepTerms


def own_shards(count: int, rank: int, number: int) -> Shards:
    """Returns the micro-batches of `rank` among `number` ranks, which must divide their count."""
    if count % number:
        raise ConfigError(
            f"{number} ranks cannot share {count} micro-batches: set --train.shards to a multiple of "
            f"{number}, or start a number of ranks that divides it."
        )
    each = count // number
    return Shards(count, rank * each, (rank + 1) * each)


class MicroBatchSum:
    """The sum of one step's micro-batches over all ranks, and what it does to the model.

    Integers among the buffers, such as BatchNorm's count of batches, advance alike in every micro-batch.

    Args:
        micro_batches: how many micro-batches the step has, over all ranks.
    """

    def __init__(self, model: nn.Module, micro_batches: int) -> None:
        self.single = micro_batches == 1
        self.parameters = [p for p in model.parameters() if p.requires_grad]
        self._buffers = [(b, b.detach().clone()) for b in model.buffers()]
        self._floating = [(b, old) for b, old in self._buffers if b.is_floating_point()]
        self._rows: list[Tensor] = []
        self._metrics: dict[str, Tensor] = {}

    @contextmanager
    def forward(self, fraction: float) -> Iterator[list[Tensor]]:
        """Lets a micro-batch find the buffers as they were before the step; afterwards the list has its
        fraction of their change."""
        moved: list[Tensor] = []
        if self.single:
            yield moved
            return
        # BatchNorm starts every micro-batch from the statistics before the step, and its change is noted.
        self._reset()
        yield moved
        moved += [(b.detach() - old) * fraction for b, old in self._floating]

    def add(self, moved: Sequence[Tensor], terms: StepTerms, loss: Tensor, fraction: float) -> None:
        """Adds a micro-batch after its backward pass.

        Args:
            moved: its fraction of the change of the buffers, from `forward`.
            terms: its metrics.
            loss: its fraction of the loss, with the cosine constraint if it carries it.
            fraction: its images over those of the step.
        """
        self._metrics = terms.metrics
        if self.single:
            self._rows.append(loss.detach())
            return
        # One row holds all that the micro-batch adds: gradients, buffers, metrics and loss.
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        metrics = [values_L * fraction for values_L in terms.metrics.values()]
        row = torch.cat([t.detach().flatten() for t in (*gradients, *moved, *metrics, loss)])
        for parameter in self.parameters:
            parameter.grad = None
        if ranks.count() == 1 and self._rows:  # in one process the running sum is enough
            self._rows[0] += row
        else:
            self._rows.append(row)

    def finish(self) -> StepTerms:
        """Puts the sum of all ranks' rows into gradients and buffers, and returns loss and metrics.

        If the loss is not finite, weights and buffers stay as they were.
        """
        if self.single:
            loss = self._rows[0]
            if not torch.isfinite(loss):
                self._reset()
            return StepTerms(loss, self._metrics)
        # Add the rows of all ranks in the order of their micro-batches, and take the sum apart again.
        total = ranks.ordered_sum(torch.stack(self._rows))
        sizes = [p.numel() for p in self.parameters] + [b.numel() for b, _ in self._floating]
        parts = torch.split(total, [*sizes, *(len(values_L) for values_L in self._metrics.values()), 1])
        loss, metrics = parts[-1][0], parts[len(sizes) : -1]
        if torch.isfinite(loss):
            for parameter, part in zip(self.parameters, parts, strict=False):
                parameter.grad = torch.empty_like(parameter).copy_(part.view_as(parameter))
            for (buffer, old), part in zip(self._floating, parts[len(self.parameters) :], strict=False):
                buffer.data.copy_(old + part.view_as(old))
        else:
            self._reset()
        return StepTerms(loss, dict(zip(self._metrics, metrics, strict=True)))

    def _reset(self) -> None:
        for buffer, old in self._buffers:
            buffer.data.copy_(old)  # not seen by autograd, for which other micro-batches may still wait
