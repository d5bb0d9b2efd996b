"""An engine, its noise and a budget: certificates and predictions for grid images."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

import numpy as np

from smoothheads.certify import algorithm
from smoothheads.certify.algorithm import Prediction, Run, Terms
from smoothheads.certify.budgets import AnytimeBudget
from smoothheads.certify.confidence import Confidence, ConfidenceMethod, confidence_lower
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.drive import Drive, Flight, OnVotes, drive, steps
from smoothheads.certify.engines import Engine
from smoothheads.certify.radius import max_radius
from smoothheads.certify.soundness import require_still
from smoothheads.config.check import check_radius
from smoothheads.data import DataInfo, Dataset, as_pixels
from smoothheads.errors import ConfigError, DataError, SoundnessError
from smoothheads.types import ENSEMBLE, UNLABELLED, Certificate, Certified, Phase, Pixels

T = TypeVar("T")
_PREDICT_SAMPLES: Final = 1000  # where the budget says none


class Certifier:
    """`info` says what images the engine's network takes, `config` what to do with its votes.

    The noise of an image without an index is keyed by its content and a secret, so that nobody can search for
    an image with unlucky noise; without the secret it is `repeatable`, by whoever knows the seed.
    """

    notes: tuple[str, ...] = ()
    """What whoever uses it should know."""

    def __init__(
        self, engine: Engine, info: DataInfo, config: CertifyConfig, *, repeatable: bool = False
    ) -> None:
        self.engine, self.info, self.config = engine, info, config.seeded()
        self._secret = b"" if repeatable else secrets.token_bytes(32)
        self._fingerprint = engine.fingerprint()
        if config.aggregation not in engine.aggregations:
            known = ", ".join(engine.aggregations)
            raise ConfigError(
                "a known aggregation of this network", repr(config.aggregation), f"choose from: {known}"
            )
        self.budget, self.law = config.budget, engine.noise.law
        self.correction = engine.noise.correction(int(np.prod(info.shape)))
        self.budget.check(self.terms(0))  # an impossible plan is refused before the first image
        endless = self.budget.max_samples is None
        most = max_radius(self.n, config.alpha, config.sigma, self.law.radius)
        self.max_radius = float("inf") if endless else most

    def records(
        self,
        dataset: Dataset,
        skip: set[int] | None = None,
        on_votes: OnVotes | None = None,
        drive: Drive = drive,
    ) -> Iterator[Certified]:
        """Certifies every image of `dataset` in order, leaving out the indices in `skip`. Images that were
        under way together share the time that it took. `drive` says who counts the votes.

        Raises SoundnessError when the network changed under way; what came before is then void too.
        """
        self._require_end()
        indices, labels = dataset.indices.tolist(), dataset.labels.tolist()
        left = [i for i, index in enumerate(indices) if not skip or index not in skip]
        flights = (self._certification(dataset.image(i), indices[i], labels[i]) for i in left)
        places = iter(left)
        started = time.monotonic()
        for group in drive(self.engine, flights, on_votes):
            self._require_still()
            together = [self._certified(flight, labels[next(places)]) for flight in group]
            timed = all(certified.seconds for certified in together)
            yield from together if timed else _sharing(time.monotonic() - started, together)
            started = time.monotonic()

    def certify_image(
        self,
        image: Any,
        index: int | None = None,
        *,
        label: int | None = None,
        on_votes: OnVotes | None = None,
    ) -> Certified:
        """CERTIFY one image; without an index its noise is keyed by its content.

        The label is used by a label-aware budget alone.
        """
        self._require_end()
        flight = self._certification(as_pixels(image, self.info), index, label)
        for _ in drive(self.engine, [flight], on_votes):
            pass
        self._require_still()
        return self._certified(flight, UNLABELLED if label is None else label)

    def stream(
        self,
        image: Any,
        index: int | None = None,
        *,
        n: int | None = None,
        target: float | None = None,
        seconds: float | None = None,
    ) -> Iterator[Certificate]:
        """The growing certificates of the anytime budget, block by block: every one of them holds, so whoever
        listens may stop at any. Without n, target and seconds it goes on for ever."""
        budget = AnytimeBudget(n0=self.n0, n=n, target=target, seconds=seconds)
        for flight in self.steps(budget.run, image, index):
            certificate = flight.result if flight.request is None else flight.so_far
            if certificate is not None:
                yield certificate

    def steps(
        self, run: Callable[[Terms], Run[T]], image: Any, index: int | None = None
    ) -> Iterator[Flight[T]]:
        """Drives any run with the votes of one image, to be looked at after every part of a request that was
        served; the last time `request` is None and `result` is there."""
        pixels = as_pixels(image, self.info)
        key = self._key(pixels, index)
        for flight in steps(self.engine, self._flight(run(self.terms(key)), pixels, key)):
            self._require_still()
            yield flight

    def predict(self, image: Any, index: int | None = None) -> Prediction:
        """PREDICT one image with n samples: a class, or an abstention."""
        return self.predict_all([as_pixels(image, self.info)], [index])[0]

    def predict_all(
        self, images: Sequence[Pixels], indices: Sequence[int | None] | None = None
    ) -> list[Prediction]:
        """PREDICT several images, together where the engine takes several blocks in a pass."""
        keys = [None] * len(images) if indices is None else indices
        flights = [
            self._flight(
                algorithm.predict(n=self.n, alpha=self.config.alpha, correction=self.correction), image, index
            )
            for image, index in zip(images, keys, strict=True)
        ]
        predictions = [flight.result for group in drive(self.engine, flights) for flight in group]
        self._require_still()
        return predictions

    def confidence(
        self,
        image: Any,
        radius: float,
        index: int | None = None,
        *,
        method: ConfidenceMethod = "distribution",
    ) -> Confidence:
        """How sure the ensemble stays within `radius`: a bound on the mean probability, over the noise, that
        the softmax of its mean logits gives to the class that n0 samples choose. n fresh samples bound it."""
        config = self.config
        if self.law.norm != "l2" or config.aggregation != ENSEMBLE:
            got = f"{self.law.name} noise and aggregation {config.aggregation}"
            raise ConfigError(
                "Gaussian noise and the aggregation ensemble", got, "confidence is certified for these"
            )
        check_radius(radius)
        pixels = as_pixels(image, self.info)
        key = self._key(pixels, index)
        selection = self.engine.votes(pixels, key, Phase.SELECTION, 0, self.n0).for_aggregation(
            config.aggregation
        )
        prediction = algorithm.top_class(algorithm.checked(selection, self.n0))
        scores = self.engine.scores(pixels, key, Phase.SCORES, 0, self.n)[:, prediction]
        self._require_still()
        lower = confidence_lower(
            scores, radius, sigma=config.sigma, alpha=config.alpha, correction=self.correction, method=method
        )
        return Confidence(prediction, radius, lower, float(scores.mean()), self.n)

    def seconds_per_sample(self) -> float:
        """From one pass on a blank image after another that warms up."""
        samples = self.engine.blocks_per_pass * self.engine.noise.block_size
        blank = np.zeros(self.info.shape, dtype=np.uint8)
        for _ in range(2):
            started = time.perf_counter()
            self.engine.votes(blank, 0, Phase.PILOT, 0, samples)
        return (time.perf_counter() - started) / samples

    def _certification(self, image: Pixels, index: int | None, label: int | None) -> Flight[Certificate]:
        known = self._known(label) if self.budget.uses_label else None
        key = self._key(image, index)
        return self._flight(self.budget.run(self.terms(key, known)), image, key)

    @property
    def n0(self) -> int:
        """Samples that choose a class."""
        return int(getattr(self.budget, "n0", 100))

    @property
    def n(self) -> int:
        """Samples that bound a probability, or decide a prediction."""
        return self.budget.max_samples or _PREDICT_SAMPLES

    def terms(self, index: int, label: int | None = None) -> Terms:
        """What the certificate of an image is about."""
        return Terms.of(self.config, self.correction, index, label)

    def _flight(self, run: Run[T], image: Pixels, index: int | None) -> Flight[T]:
        return Flight(run, image, self._key(image, index), self.config.aggregation, self.engine)

    def _key(self, image: Pixels, index: int | None) -> int:
        if image.shape != self.info.shape:
            wanted, got = _size(self.info.shape), _size(image.shape)
            raise DataError(f"an image of {wanted}", got, "resize or crop it as in training")
        return content_key(image, self._secret) if index is None else index

    def _require_end(self) -> None:
        if not self.budget.ends:
            raise ConfigError(
                "a budget that ends on every image", "anytime without n and seconds", "give one of them"
            )

    def _known(self, label: int | None) -> int:
        classes = self.engine.classes
        if label is None or not 0 <= label < classes:
            raise ConfigError(
                f"a label from 0 to {classes - 1} for a label-aware budget",
                "none" if label is None else str(label),
                "certify a data set, or drop label_aware",
            )
        return label

    def _certified(self, flight: Flight[Certificate], label: int) -> Certified:
        return Certified(
            index=flight.index,
            label=label,
            certificate=self._checked(flight.result, flight.index),
            selection=flight.votes(Phase.SELECTION, Phase.PILOT),
            votes=flight.votes(Phase.ESTIMATION),
            seconds=flight.seconds,
        )

    def _checked(self, certificate: Certificate, index: int) -> Certificate:
        if not certificate.radius <= self.max_radius:
            raise SoundnessError(
                f"a radius of at most {self.max_radius:g}, which {self.budget.max_samples} equal votes show",
                f"{certificate.radius:g} for image {index}",
                "this certificate is wrong; report how it came about",
            )
        return certificate

    def _require_still(self) -> None:
        require_still(self._fingerprint, self.engine.fingerprint())


def _sharing(seconds: float, together: Sequence[Certified]) -> list[Certified]:
    """The time that they took together, shared out by the samples that each needed."""
    samples = sum(certified.samples for certified in together)
    return [replace(certified, seconds=seconds * certified.samples / samples) for certified in together]


def content_key(image: Pixels, secret: bytes = b"") -> int:
    """A noise key for an image that belongs to no data set: the same image always gets the same answer."""
    return int.from_bytes(hashlib.sha256(secret + image.tobytes()).digest()[:8], "little") >> 1


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(str(side) for side in shape) + " (channels x height x width)"
