"""An engine samples one function: the votes of every aggregation on noisy samples of an image, block by block.

`EngineConfig` is what an engine is told; it builds the engine. A new one, ours or of another package, is one
file: its config, registered under its name, and its class, usually a `BlockEngine` that says what computes
the logits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from smoothheads import device as devices
from smoothheads.certify import soundness
from smoothheads.config.check import Count, at_least, check_fields
from smoothheads.errors import ConfigError
from smoothheads.lazy import torch
from smoothheads.models import aggregate
from smoothheads.registry import Registry
from smoothheads.types import Phase, Pixels, Votes

if TYPE_CHECKING:
    from torch import Tensor

    from smoothheads.certify.engines.artefact import Artefacts, Store
    from smoothheads.data import DataInfo
    from smoothheads.models.multihead import MultiHead
    from smoothheads.noise import Noise

T = TypeVar("T")

TOGETHER: Final = (
    2**16
)  # logits that are decided at once; the aggregations take as long for a block as for ten

ENGINES: Final[Registry[type[EngineConfig]]] = Registry("engine", "smoothheads.engines")


@dataclass(frozen=True, slots=True)
class Network:
    """What an engine is built for: a network, its images, the noise, and the aggregation that is certified."""

    model: MultiHead
    info: DataInfo
    noise: Noise
    aggregation: str
    store: Store
    """Where converted networks are kept."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig(ABC):
    """Settings of one engine, which they build. Another setting may be another way to round, and so another
    base classifier: all of them are in the manifest."""

    registry: ClassVar[Registry[type[EngineConfig]]] = ENGINES
    name: ClassVar[str]

    threads: Count = 1
    blocks_per_pass: int | Literal["auto"] = 1
    """Blocks per forward pass, of one image or of several: more are faster for small networks. auto: what a
    trial finds fastest."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.blocks_per_pass != "auto":
            at_least("blocks_per_pass", self.blocks_per_pass, 1)

    @abstractmethod
    def build(self, network: Network) -> Engine:
        """The engine; nothing says `auto` any more. The model is left in the mode it came in."""

    @property
    def undecided(self) -> bool:
        """Whether a setting says `auto`, so that a trial must choose."""
        return "auto" in self.settings().values()

    def settings(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def candidates(self) -> list[EngineConfig]:
        """Between which a trial chooses: this one alone, unless it stands for others."""
        return [self]

    @classmethod
    def offer(cls, wanted: EngineConfig) -> Self | None:  # noqa: ARG003
        """This engine with the settings of `auto`; none if it takes no part."""
        return None

    def decide(self, network: Network, seconds: float) -> tuple[Self, str | None]:  # noqa: ARG002
        """What else says `auto`, settled for a run of so many seconds, and why."""
        return self, None


def check_float16(precision: str, device: str) -> None:
    if precision == "float16" and device.startswith("cpu"):
        raise ConfigError("device cuda for float16", repr(device), "use float32 or bfloat16 on a processor")


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """`count` noisy samples of an image, from the first of `block` on into the blocks that follow."""

    image: Pixels
    index: int
    phase: Phase
    block: int
    count: int


class Engine(Protocol):
    """The certificate belongs to exactly the function that the engine computes, so it describes itself."""

    aggregations: tuple[str, ...]
    classes: int
    noise: Noise
    blocks_per_pass: int
    """How many blocks the network computes at once."""
    artefacts: Artefacts = ()
    """The converted networks that it runs, if it runs such."""

    @abstractmethod
    def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
        """Votes for every request. Blocks are computed whole and every pass holds the same number of them,
        whose logits do not depend on each other by one bit, so that votes depend on the key alone. Raises
        SoundnessError when that does not hold, or when a logit is not finite."""

    def votes(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> Votes:
        """`votes_of` one request."""
        return self.votes_of([Request(image, index, phase, block, count)])[0]

    @abstractmethod
    def scores(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> NDArray[np.float64]:
        """Probabilities [count, C] that the ensemble gives the classes: the softmax of its mean logits.
        Otherwise as `votes`."""

    @abstractmethod
    def fingerprint(self) -> str:
        """Hash of everything the function is made of; equal before and after means that it kept still."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """What the manifest records: engine, precision, device, threads and whatever else tells this function
        from another one."""


Key = tuple[Pixels, int, Phase, int]
"""Image, its index, phase and block: what decides the noise."""


class Block(NamedTuple):
    """One block of a pass: which of the requests it is for, the key of its noise, and how many of its samples
    are wanted."""

    request: int
    key: Key
    wanted: int


class BlockEngine(Engine):
    """What all our engines share: noise ahead of the network, passes of one size, checks, and votes of every
    aggregation. Subclasses say what computes the logits of a pass, always of as many whole blocks."""

    tolerance: float = 1e-3
    """How much the place in a block may move a logit (`soundness.moved`): rounding, nothing else."""
    background: bool = True
    """Whether a thread draws the next pass while the network is busy with this one."""

    def __init__(self, config: EngineConfig, network: Network) -> None:
        model = network.model
        assert config.blocks_per_pass != "auto"
        self.config, self.noise, self.classes = config, network.noise, network.info.classes
        self.threads, self.blocks_per_pass = config.threads, config.blocks_per_pass
        self.samples_per_pass = self.blocks_per_pass * self.noise.block_size
        self.weights_L, self.heads = model.ensemble_weights, len(model.heads)
        self._other = aggregate.plugin_aggregation(network.aggregation)
        self.aggregations = aggregate.aggregations(self.heads, weighted=self.weights_L is not None)
        if self._other is not None:
            self.aggregations += (self._other.name,)
        self._probed = False

    @abstractmethod
    def _prepared(self, samples: NDArray[np.float32]) -> Tensor:
        """The pass as the network wants it; called in the background."""

    @abstractmethod
    def _logits(self, samples_NCHW: Tensor) -> Tensor:
        """Float32 logits [L, N, C] in memory of their own."""

    def votes_of(self, requests: Sequence[Request]) -> list[Votes]:
        votes = [Votes.zeros(self.aggregations, self.classes) for _ in requests]
        with self.computing():
            for logits_LNC, samples in self.logits(requests):
                weights = None if self.weights_L is None else self.weights_L.tolist()
                classes_RN = torch.from_numpy(
                    aggregate.aggregate_votes(logits_LNC.cpu().numpy(), weights, self._other)
                )
                parts = classes_RN.split_with_sizes(list(samples.values()), 1)
                for request, part_RN in zip(samples, parts, strict=True):
                    votes[request] += Votes(self.aggregations, self._counted(part_RN))
        return votes

    def scores(self, image: Pixels, index: int, phase: Phase, block: int, count: int) -> NDArray[np.float64]:
        with self.computing():
            pieces = self.logits([Request(image, index, phase, block, count)])
            p_NC = [aggregate.ensemble(logits_LNC).softmax(-1).cpu().numpy() for logits_LNC, _ in pieces]
        return np.concatenate(p_NC)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Inside it logits are computed: without gradients, with the threads of the settings."""
        with torch.inference_mode(), devices.threads(self.threads):
            yield

    def logits(self, requests: Sequence[Request]) -> Iterator[tuple[Tensor, dict[int, int]]]:
        """Finite logits [L, M, C] of all heads on the samples that are wanted, in pieces of at most TOGETHER
        numbers unless a block has more, and how many of them belong to which request, in order. To be read
        inside `computing`."""
        parts: list[Tensor] = []
        samples: dict[int, int] = {}
        for samples_NCHW, blocks in self._passes(requests):
            self._probe(samples_NCHW)
            logits_LNC = self._logits(samples_NCHW)
            for place, block in enumerate(blocks):
                first = place * self.noise.block_size
                parts.append(logits_LNC[:, first : first + block.wanted])
                samples[block.request] = samples.get(block.request, 0) + block.wanted
                if sum(part.numel() for part in parts) + parts[-1].numel() > TOGETHER:
                    yield self._joined(parts, samples, requests), samples
                    parts, samples = [], {}
        if parts:
            yield self._joined(parts, samples, requests), samples

    def _joined(self, parts: list[Tensor], samples: dict[int, int], requests: Sequence[Request]) -> Tensor:
        """The parts as one, if all are finite."""
        logits_LNC = torch.cat(parts, 1)
        of_requests = logits_LNC.split_with_sizes(list(samples.values()), 1)
        for request, part_LNC in zip(samples, of_requests, strict=True):
            self._require_votes(part_LNC, requests[request].index)
        return logits_LNC

    def _passes(self, requests: Sequence[Request]) -> Iterator[tuple[Tensor, list[Block]]]:
        """Whole passes of samples, the noise drawn ahead, and the blocks in them."""
        size, most = self.noise.block_size, self.blocks_per_pass
        blocks = [
            Block(
                number,
                (ask.image, ask.index, ask.phase, ask.block + done // size),
                min(size, ask.count - done),
            )
            for number, ask in enumerate(requests)
            for done in range(0, ask.count, size)
        ]
        passes = [blocks[first : first + most] for first in range(0, len(blocks), most)]

        def prepared(number: int) -> Tensor:
            keys = [block.key for block in passes[number]]
            with torch.inference_mode():  # of the thread that draws
                return self._samples(keys + keys[-1:] * (most - len(keys)))  # the rest is thrown away

        numbers = range(len(passes))
        drawn = prefetch(prepared, numbers) if self.background else map(prepared, numbers)
        yield from zip(drawn, passes, strict=True)

    def _samples(self, keys: Sequence[Key]) -> Tensor:
        """The samples of these blocks, as the network wants them."""
        drawn = [self.noise.noisy(*key) for key in keys]
        return self._prepared(drawn[0] if len(drawn) == 1 else np.concatenate(drawn))

    def _probe(self, samples_NCHW: Tensor) -> None:
        """Until it has seen a pass of finite logits."""
        if not self._probed and soundness.require_function(self._logits, samples_NCHW, self.tolerance):
            soundness.require_apart(self._logits, samples_NCHW, self.noise.block_size)
            self._probed = True

    def _require_votes(self, logits_LNC: Tensor, index: int) -> None:
        soundness.require_classes(logits_LNC, self.classes)
        soundness.require_finite(logits_LNC, index)

    def _counted(self, classes_RN: Tensor) -> NDArray[np.int64]:
        """Votes [R, C]; a class outside the range would spill into the next aggregation's row, so it is refused."""
        soundness.require_range(classes_RN, self.classes)
        rows = torch.arange(len(classes_RN), device=classes_RN.device)[:, None] * self.classes
        counts = torch.bincount((classes_RN + rows).flatten(), minlength=len(classes_RN) * self.classes)
        table: NDArray[np.int64] = counts.reshape(len(classes_RN), self.classes).cpu().numpy()
        return table


def prefetch(make: Callable[[int], T], items: Sequence[int]) -> Iterator[T]:
    """`make(item)` of every item in order; the next one is made while the caller is busy with this one."""
    if len(items) < 2:
        yield from map(make, items)
        return
    with ThreadPoolExecutor(1) as background:
        coming = background.submit(make, items[0])
        for item in items[1:]:
            made = coming.result()
            coming = background.submit(make, item)
            yield made
        yield coming.result()
