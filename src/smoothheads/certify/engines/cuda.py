"""CUDA, which is EXPERIMENTAL: no GPU was at hand, and all that is known is that the same code, with a
recorder that replays on the processor, votes as it should. What is said of it stands here alone.

Work is recorded once and replayed: one launch instead of one per operation. Besides, `device.strict`
computes float32 as float32.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from smoothheads.certify.soundness import moved
from smoothheads.errors import ConfigError, SoundnessError, reason
from smoothheads.lazy import torch

if TYPE_CHECKING:
    from torch import Tensor

WARM_UPS: Final = 3  # libraries set themselves up in their first calls, which a recording must not contain

Replay = Callable[[], Any]


class Recorder(Protocol):
    def __call__(self, work: Callable[[], Any]) -> tuple[Any, Replay]:
        """What `work` returns, and a replay: it reads the memory that `work` has read, and writes what comes
        of it where those results are."""
        ...


class CudaRecorder:
    """CUDA graphs. The device's current stream orders replays and whatever goes before and after them."""

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def __call__(self, work: Callable[[], Any]) -> tuple[Any, Replay]:
        with torch.cuda.device(self.device):
            current, side = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(current)
            with torch.cuda.stream(side):  # the stream that records: handles and workspaces belong to one
                for _ in range(WARM_UPS):
                    work()
            current.wait_stream(side)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=side):
                results = work()
        return results, graph.replay


class Recorded:
    """A function of tensors, for arguments like the examples. It hands out copies: a replay overwrites its
    own results.

    Raises ConfigError if the work cannot be recorded. After that CUDA may be in disorder, so there is no
    falling back to plain calls.
    """

    def __init__(self, function: Callable[..., Any], examples: Sequence[Tensor], recorder: Recorder) -> None:
        self._function = function  # keeps alive what a replay reads, the weights above all
        self._arguments = [example.clone() for example in examples]
        try:
            self._results, self._replay = recorder(lambda: function(*self._arguments))
        except Exception as error:  # whatever the driver, a library or the network's own code has to say
            raise ConfigError(
                "a network that CUDA graphs can record", reason(error), "switch graphs off in a new process"
            ) from error

    def __call__(self, *arguments: Tensor) -> Any:
        for kept, given in zip(self._arguments, arguments, strict=True):
            if (kept.shape, kept.dtype) != (given.shape, given.dtype):
                raise SoundnessError(
                    f"{_kind(kept)}, as was recorded", _kind(given), "an engine passes whole blocks alone"
                )
            kept.copy_(given, non_blocking=True)
        self._replay()
        return _copied(self._results)


def require_replay(
    recorded: Recorded, function: Callable[[Tensor], Any], like: Tensor, tolerance: float
) -> None:
    """Compares a replay with a plain call, on values that were not recorded."""
    other = torch.linspace(-1, 2, like.numel(), device=like.device, dtype=like.dtype).reshape(like.shape)
    for want, got in zip(_tensors(function(other)), _tensors(recorded(other)), strict=True):
        if bool(want.isfinite().all()) and moved(want, got, tolerance, logits=False):
            raise SoundnessError(
                "a replay that computes what the network computes",
                f"results that differ by {float((want - got).abs().max()):.3g}",
                "switch graphs off",
            )


def _copied(results: Any) -> Any:
    return results.clone() if isinstance(results, torch.Tensor) else tuple(map(_copied, results))


def _tensors(results: Any) -> tuple[Tensor, ...]:
    return (results,) if isinstance(results, torch.Tensor) else tuple(results)


def _kind(tensor: Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)}"
