"""A vote counter and a budget: certificates and predictions for grid images."""

from __future__ import annotations

import hashlib
import math
import secrets
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np

from smoothheads.certify import algorithm
from smoothheads.certify.algorithm import CertifyParams, Prediction, Run
from smoothheads.certify.bounds import max_radius
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import ENGINES, ConversionCache, Engine, Network
from smoothheads.certify.soundness import NotAFunctionError
from smoothheads.certify.votes import OnVotes, PendingImage, VoteCounter
from smoothheads.data import DataInfo, Dataset, as_pixels
from smoothheads.errors import ConfigError, DataError, SoundnessError
from smoothheads.models.adapters import BlackBox
from smoothheads.types import UNLABELLED, Certified, Phase, Pixels

if TYPE_CHECKING:
    from smoothheads.models.multihead import MultiHead
    from smoothheads.noise import Noise

T = TypeVar("T")
FEW_SIGMAS: Final = 0.5  # a largest radius below so many sigmas is worth a note
_PREDICT_SAMPLES: Final = 1000  # where the budget has no limit


class Certifier:
    """CERTIFY and PREDICT for the images of a data set, or for any images.

    The noise of an image without an index is keyed by its content. Where no seed is given a secret is part of
    that key, so that nobody can search for an image with unlucky noise.

    Args:
        model: The network, or a classifier that is only called; None if `cache.given` has a converted one
            that needs no PyTorch.
        info: The images that it takes.
        config: Settings; a seed is drawn if there is none.
        cache: Where converted networks are kept.
    """

    def __init__(
        self,
        model: MultiHead | BlackBox | None,
        info: DataInfo,
        config: CertifyConfig,
        *,
        cache: ConversionCache | None = None,
    ) -> None:
        # A classifier that is no module of PyTorch has an engine of its own.
        if isinstance(model, BlackBox):
            if config.engine not in ("torch", "function"):
                raise ConfigError(
                    f"Engine {config.engine} computes modules of PyTorch, and {model.name} is called as it "
                    "is: leave the engine out."
                )
            config = config.changed(engine="function")
        self._secret = secrets.token_bytes(32) if config.seed is None else b""
        self.info, self.config = info, config.seeded().resolved()
        self.budget = self.config.plan
        # This is the one place where noise, network and engine meet. The noise has the law, sigma and seed of
        # the settings and the grid of the images.
        assert self.config.seed is not None
        noise = self.config.law.keyed(config.sigma, info.grid, self.config.seed, config.block)
        self.law = noise.law
        network = Network(model, info, noise, cache or ConversionCache())
        engine = ENGINES.get(config.engine)(self.config, network)
        self.counter = VoteCounter(engine, noise, self.config)
        # What the function is made of now; `_check_function` compares it after every image.
        self._fingerprint, self._rechecked = engine.fingerprint(), self.counter.recheck.total
        self.correction = noise.correction(int(np.prod(info.shape)))
        # An impossible plan is refused before the first image.
        self.budget.check(self.params())
        # No certificate may exceed what unanimous votes show (see `_certify`).
        endless = self.budget.max_samples is None
        self.max_radius = (
            math.inf if endless else max_radius(self.n, config.alpha, config.sigma, self.law.radius)
        )
        self.notes: tuple[str, ...] = () if model is None else model.notes
        """Notes for the user, for example that n certifies small radii only."""
        if self.max_radius < FEW_SIGMAS * config.sigma:
            self.notes += (
                f"n = {self.n} certifies a radius of at most {self.max_radius:.2g}, even if all votes agree: "
                "raise n (100 for a first look, 100,000 in published tables)",
            )

    @property
    def engine(self) -> Engine:
        """What computes the network."""
        return self.counter.engine

    @property
    def noise(self) -> Noise:
        """The keyed noise of all samples."""
        return self.counter.noise

    @property
    def n0(self) -> int:
        """Samples that choose a class."""
        return int(getattr(self.budget, "n0", 100))

    @property
    def n(self) -> int:
        """Samples that bound a probability, or decide a prediction."""
        return self.budget.max_samples or _PREDICT_SAMPLES

    def params(self, label: int | None = None) -> CertifyParams:
        """Returns what the certificate of an image depends on."""
        return CertifyParams.of(self.config, self.correction, label)

    def records(
        self,
        dataset: Dataset,
        skip: set[int] | None = None,
        on_votes: OnVotes | None = None,
    ) -> Iterator[Certified]:
        """Certifies every image of `dataset` in order.

        Args:
            dataset: Images with their labels and indices.
            skip: Indices to leave out.
            on_votes: Called with how many samples were counted.

        Raises NotAFunctionError when the network changed meanwhile; earlier certificates are then void too.
        """
        labels = dataset.labels.tolist()
        for position, index in enumerate(dataset.indices.tolist()):
            if not skip or index not in skip:
                yield self._certify(dataset.image(position), index, labels[position], on_votes)

    def certify_image(self, image: Any, index: int | None = None, *, label: int | None = None) -> Certified:
        """CERTIFY one image; without an index its noise is keyed by its content.

        The label is used by a label-aware budget alone.
        """
        return self._certify(as_pixels(image, self.info), index, UNLABELLED if label is None else label)

    def steps(
        self, run: Callable[[CertifyParams], Run[T]], image: Any, index: int | None = None
    ) -> Iterator[PendingImage[T]]:
        """Yields the pending image after every part of a request of any run on one image.

        The last time its `request` is None and its `result` is there.
        """
        for pending in self._pending(run(self.params()), as_pixels(image, self.info), index).steps():
            self._check_function()
            yield pending

    def predict(self, image: Any, index: int | None = None) -> Prediction:
        """PREDICT one image with n samples: a class, or an abstention."""
        run = algorithm.predict(n=self.n, alpha=self.config.alpha, correction=self.correction)
        prediction = self._finish(self._pending(run, as_pixels(image, self.info), index))
        self._check_function()
        return prediction

    def _certify(
        self, image: Pixels, index: int | None, label: int, on_votes: OnVotes | None = None
    ) -> Certified:
        if not self.budget.ends:
            raise ConfigError("Budget anytime needs n or seconds to end on every image: set one of them.")
        if self.budget.uses_label and not 0 <= label < self.info.classes:
            raise ConfigError(
                f"A label-aware budget needs a label from 0 to {self.info.classes - 1}, but it is "
                f"{'missing' if label == UNLABELLED else label}: certify a data set, or drop label_aware."
            )
        started = time.monotonic()
        params = self.params(label if self.budget.uses_label else None)
        pending = self._pending(self.budget.run(params), image, index)
        certificate = self._finish(pending, on_votes)
        # Nothing is handed out before the network has shown that it is still the same function.
        rechecked = self._check_function()
        if not certificate.radius <= self.max_radius:
            raise SoundnessError(
                f"The radius {certificate.radius:g} of image {pending.index} exceeds {self.max_radius:g}, "
                f"which {self.budget.max_samples} unanimous votes show: report how it came about."
            )
        return Certified(
            index=pending.index,
            label=label,
            certificate=certificate,
            selection=pending.votes(Phase.SELECTION, Phase.PILOT),
            votes=pending.votes(Phase.ESTIMATION),
            seconds=time.monotonic() - started,
            rechecked=rechecked,
        )

    def _finish(self, pending: PendingImage[T], on_votes: OnVotes | None = None) -> T:
        """Returns the result of a run."""
        for _ in pending.steps(on_votes):
            pass
        return pending.result

    def _pending(self, run: Run[T], image: Pixels, index: int | None) -> PendingImage[T]:
        if image.shape != self.info.shape:
            expected, given = ("x".join(map(str, shape)) for shape in (self.info.shape, image.shape))
            raise DataError(
                f"The network takes images of {expected} (channels x height x width), but this one has "
                f"{given}: resize or crop it as in training."
            )
        # The key of the noise: the image's index in its data set, or its content.
        key = content_key(image, self._secret) if index is None else index
        return PendingImage(run, image, key, self.config.aggregation, self.counter)

    def _check_function(self) -> tuple[int, int]:
        """Raises NotAFunctionError if the network changed, or if a second evaluation gives other logits.

        Returns how many samples were evaluated again since the last call, and how many votes rounding
        changed.
        """
        # Evaluate what is remembered a second time, then compare tensors and attributes.
        self.counter.recheck.run()
        if self.engine.fingerprint() != self._fingerprint:
            raise NotAFunctionError(
                "The network's weights, buffers or attributes changed during certification: let the forward "
                "pass keep no state (run the network once before if it fills a cache), and start a new "
                "ledger."
            )
        before, self._rechecked = self._rechecked, self.counter.recheck.total
        return self._rechecked.samples - before.samples, self._rechecked.changed - before.changed


def content_key(image: Pixels, secret: bytes = b"") -> int:
    """Returns a noise key for an image that belongs to no data set: the same for the same image."""
    return int.from_bytes(hashlib.sha256(secret + image.tobytes()).digest()[:8], "little") >> 1
