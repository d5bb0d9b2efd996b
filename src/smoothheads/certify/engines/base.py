"""What an engine is: a function from noisy samples to logits that describes itself.

Noise, passes, counting votes and all checks are in `certify.votes`, outside of the engines. An engine of
another package is one class, registered under its name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from smoothheads.errors import ConfigError, SmoothheadsError, SoundnessError, reason
from smoothheads.models.adapters import BlackBox
from smoothheads.registry import Registry

if TYPE_CHECKING:
    from smoothheads.certify.config import CertifyConfig
    from smoothheads.certify.engines.conversion import ConversionCache, ConvertedModel
    from smoothheads.data import DataInfo
    from smoothheads.models.multihead import MultiHead
    from smoothheads.noise import Noise

Floats: TypeAlias = NDArray[np.float32]
PROBE_IMAGES: Final = 3


@dataclass(frozen=True, slots=True)
class Network:
    """What an engine is built from."""

    model: MultiHead | BlackBox | None
    """None if only a converted network is at hand, which `cache.given` then holds."""
    info: DataInfo
    """The shape and the classes of its images."""
    noise: Noise
    """An int8 network is quantised for images with this noise."""
    cache: ConversionCache

    @property
    def module(self) -> MultiHead:
        """Returns the network of PyTorch; the engines for it are never given anything else."""
        assert hasattr(self.model, "heads")
        return self.model  # type: ignore[return-value]


class Engine(ABC):
    """Computes the logits of all heads. The certificate belongs to exactly the function that it computes.

    Another setting may be another way to round, and so another base classifier; all of them are in the
    manifest.
    """

    name: ClassVar[str]
    parameters: ClassVar[Mapping[str, Any]] = {}
    """Parameters besides precision and threads, with their defaults: fields or `options` of CertifyConfig."""
    precisions: ClassVar[tuple[str, ...]] = ("float32",)

    classes: int
    heads: int
    head_weights: tuple[float, ...] | None = None
    """Learned weights of the heads, for the aggregation `weighted`."""
    tolerance: float = 1e-3
    """How far rounding may move a logit if a sample stands elsewhere in a batch (see `soundness.moved`)."""
    any_batch: bool = False
    """Says whether it takes batches of any size; otherwise only those of the size that it was built for."""
    converted: tuple[ConvertedModel, ...] = ()
    """The converted networks that it runs, if it runs such."""

    @abstractmethod
    def __init__(self, config: CertifyConfig, network: Network) -> None:
        """Builds the engine for passes of `config.block` samples. Leaves the model as it was."""

    @abstractmethod
    def logits(self, samples_NCHW: Floats) -> Floats:
        """Returns the logits [L, N, C] of noisy samples, in memory of their own."""

    def evaluate(self, samples_NCHW: Floats) -> Floats:
        """Returns `logits` after a look at their shape. The certifier calls an engine in no other way.

        The network gets a copy: one that writes into its input could leave a message there for the second
        evaluation, by which it would recognise the sample.
        """
        # Errors of somebody else's code become one sentence.
        try:
            logits_LNC = self.logits(samples_NCHW.copy())
        except SmoothheadsError:
            raise
        except Exception as error:  # whatever a network's own code raises
            size = "x".join(map(str, samples_NCHW.shape))
            raise ConfigError(
                f"The network fails on a batch of {size} ({reason(error)}): certify images of the size that "
                "it takes, or resize them behind the noise with sh.adapt(model, size=...)."
            ) from error
        # One row of logits per head and image.
        expected = (self.heads, len(samples_NCHW))
        if logits_LNC.ndim != 3 or logits_LNC.shape[:2] != expected:
            raise SoundnessError(
                f"The network gives outputs of shape {logits_LNC.shape} for {expected[1]} images and "
                f"{expected[0]} head(s), not logits [heads, images, classes]: return logits [images, "
                "classes] from every head."
            )
        # A vote for a class that the data do not have would count for a class of the next aggregation.
        if logits_LNC.shape[-1] != self.classes:
            raise SoundnessError(
                f"The network gives logits of {logits_LNC.shape[-1]} classes, but the data have "
                f"{self.classes}: certify on the data that it was trained for, or state how many classes "
                "there are."
            )
        return logits_LNC

    @abstractmethod
    def fingerprint(self) -> str:
        """Returns a hash of everything the function is made of; equal before and after means unchanged."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Returns what tells this function from any other, for the manifest."""

    def use_network(self, network: Network) -> None:
        """Sets classes, heads and their weights as the network has them."""
        model = network.module
        weights_L = model.ensemble_weights
        self.classes, self.heads = network.info.classes, len(model.heads)
        self.head_weights = None if weights_L is None else tuple(weights_L.tolist())


ENGINES: Final[Registry[type[Engine]]] = Registry("engine", "smoothheads.engines")


@ENGINES.register
class FunctionEngine(Engine):
    """Calls a classifier that is no module of PyTorch. A certifier chooses it for every black box."""

    name: ClassVar[str] = "function"
    any_batch = True

    def __init__(self, config: CertifyConfig, network: Network) -> None:
        if not isinstance(network.model, BlackBox):
            raise ConfigError("Engine function is for ONNX files and functions: use engine torch.")
        self._classifier, self.threads = network.model, config.threads
        self.classes, self.heads = network.info.classes, 1
        self._classifier.prepare(network.info, config.threads)
        # Called once, so that what does not fit is refused before any image is certified; on images that
        # differ, so that a function that answers for the whole batch at once is noticed.
        shape = (PROBE_IMAGES, *network.info.shape)
        self.evaluate(np.random.default_rng(0).random(shape, dtype=np.float32))

    def logits(self, samples_NCHW: Floats) -> Floats:
        logits_NC = self._classifier.logits(samples_NCHW)
        return logits_NC[None]  # one head

    def fingerprint(self) -> str:
        return self._classifier.fingerprint()

    def describe(self) -> dict[str, Any]:
        facts = {"engine": self.name, "precision": "float32", "threads": self.threads}
        return facts | self._classifier.describe()
