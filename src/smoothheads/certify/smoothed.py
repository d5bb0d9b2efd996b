"""The smoothed classifier: the object that a certificate is about."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify import algorithm
from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.budgets import make_budget
from smoothheads.certify.confidence import Confidence, ConfidenceMethod, confidence_lower
from smoothheads.certify.engines import Artefacts, Choice, Engine, Request, choose, make_engine, undecided
from smoothheads.certify.radius import check_radius
from smoothheads.certify.theorem import theorem_of
from smoothheads.certify.together import AT_ONCE, Ask, OnVotes, together
from smoothheads.config import CertifyConfig
from smoothheads.data import DataInfo, Dataset
from smoothheads.errors import ConfigError, DataError, SoundnessError
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import make_noise
from smoothheads.types import ENSEMBLE, Certificate, Counts, Phase, Pixels, Votes


@dataclass(frozen=True, slots=True)
class Certified:
    """One image's certificate and the votes that it rests on."""

    index: int
    label: int
    certificate: Certificate
    selection: Votes
    votes: Votes
    seconds: float = 0.0

    @property
    def copies(self) -> int:
        return self.selection.n + self.votes.n


class ImageSampler:
    """Fresh votes of one rule on one image. Every call goes on where the last one of its phase stopped."""

    def __init__(self, engine: Engine, image: Pixels, index: int, rule: str, ask: Ask) -> None:
        self.engine, self.image, self.index, self.rule = engine, image, index, rule
        self._ask = ask
        self._tables: dict[Phase, Votes] = {}
        self._next_block: dict[Phase, int] = {}

    def __call__(self, phase: Phase, count: int) -> Counts:
        fresh = Votes.none(self.engine.rules, self.engine.classes)
        size = self.engine.noise.block_size
        while fresh.n < count:
            block = self._next_block.get(phase, 0)
            wanted = min(AT_ONCE * self.engine.blocks_per_pass * size, count - fresh.n)
            self._next_block[phase] = block + -(-wanted // size)
            fresh += self._ask(Request(self.image, self.index, phase, block, wanted))
        self._tables[phase] = self.table(phase) + fresh
        return fresh.of(self.rule)

    def scores(self, phase: Phase, count: int, label: int) -> NDArray[np.float64]:
        """Probabilities [count] that the ensemble gives a class, on the first `count` copies of a phase."""
        p_NC = self.engine.scores(self.image, self.index, phase, 0, count)
        return p_NC[:, label]

    def table(self, phase: Phase) -> Votes:
        """All rules' votes of a phase so far."""
        return self._tables.get(phase, Votes.none(self.engine.rules, self.engine.classes))


class Smoothed:
    """`G(x)`, the class that the base classifier gives most often under noise of deviation `sigma`.

    `info` says what images the network takes; `config` may be given field by field: `Smoothed(model, info,
    sigma=0.25, n=10_000)`. The engine openvino keeps the converted network in the folder `artefacts`, or runs
    the one that it is given there; int8 is calibrated on the images of `training`. Where the config says
    `auto` a trial decides, for a run of that many `images`; `config` then has the choice and `notes` the
    reason.
    """

    def __init__(
        self,
        model: MultiHead,
        info: DataInfo,
        config: CertifyConfig | None = None,
        *,
        artefacts: Path | Artefacts | None = None,
        training: Callable[[], Dataset] | None = None,
        images: int = 1,
        **settings: Any,
    ) -> None:
        self.model, self.info = model, info
        choice = Choice(config if config is not None else CertifyConfig(**settings))
        wanted = choice.config
        noise = make_noise(wanted.noise, wanted.sigma, info.grid, wanted.seed, wanted.block)
        kept: dict[str, Any] = {"artefacts": artefacts, "training": training}
        if undecided(wanted):
            choice = choose(wanted, model, info, noise, images=images, **kept)
        self.config, self.notes = choice.config, choice.notes
        self.engine: Engine = make_engine(self.config, model, info, noise, **kept)
        if self.config.rule not in self.engine.rules:
            known = ", ".join(self.engine.rules)
            raise ConfigError("a known rule of this network", repr(self.config.rule), f"choose from: {known}")
        self.theorem = theorem_of(noise.name)
        self.correction = noise.correction(int(np.prod(info.shape)))
        algorithm.require_samples(self.config.n0, self.config.n, self.config.alpha, self.correction)
        most = clopper_pearson_lower(self.config.n, self.config.n, self.config.alpha)
        self.ceiling = self.theorem.radius(most, self.config.sigma)
        make_budget(self.config, label=0, index=0)  # an impossible plan is refused before the first image

    def certify(
        self, dataset: Dataset, skip: set[int] | None = None, on_votes: OnVotes | None = None
    ) -> Iterator[Certified]:
        """Certifies every image of `dataset` in order, leaving out the indices in `skip`. Images that were
        under way together share the time that it took.

        Raises SoundnessError when the network changed under way; what came before is then void too.
        """
        before = self.engine.fingerprint()
        positions = [i for i, index in enumerate(dataset.indices.tolist()) if not skip or index not in skip]
        works = (partial(self._certified, dataset, position) for position in positions)
        if self.engine.blocks_per_pass > 1:
            groups = together(self.engine, works, on_votes)
        else:
            groups = ([work(self._asking(on_votes))] for work in works)
        with closing(groups):
            started = time.monotonic()
            for found in groups:
                if self.engine.fingerprint() != before:
                    raise SoundnessError(
                        "a network that stays as it is",
                        "weights or buffers that changed during certification",
                        "let the forward pass keep no state, and start a new ledger",
                    )
                yield from _sharing(time.monotonic() - started, found)
                started = time.monotonic()

    def certify_image(
        self,
        image: Pixels,
        index: int | None = None,
        *,
        label: int | None = None,
        on_votes: OnVotes | None = None,
    ) -> tuple[Certificate, ImageSampler]:
        """CERTIFY one image; without an index its noise is keyed by its content.

        The label is used by a label-aware budget alone.
        """
        sampler = self._sampler(image, index, self._asking(on_votes))
        return self._certify(sampler, label), sampler

    def _certified(self, dataset: Dataset, position: int, ask: Ask) -> Certified:
        index, label = int(dataset.indices[position]), int(dataset.labels[position])
        sampler = self._sampler(dataset.image(position), index, ask)
        return Certified(
            index=index,
            label=label,
            certificate=self._certify(sampler, label),
            selection=sampler.table(Phase.SELECTION) + sampler.table(Phase.PILOT),
            votes=sampler.table(Phase.ESTIMATION),
        )

    def _certify(self, sampler: ImageSampler, label: int | None) -> Certificate:
        budget = make_budget(self.config, label=label, index=sampler.index)
        certificate = budget.certify(
            sampler, sigma=self.config.sigma, correction=self.correction, theorem=self.theorem
        )
        if not certificate.radius <= self.ceiling:
            raise SoundnessError(
                f"a radius of at most {self.ceiling:g}, which {self.config.n} equal votes show",
                f"{certificate.radius:g} for image {sampler.index}",
                "this certificate is wrong; report how it came about",
            )
        return certificate

    def seconds_per_copy(self) -> float:
        """What a noisy copy costs, from one pass on a blank image after another that warms up."""
        copies = self.engine.blocks_per_pass * self.engine.noise.block_size
        blank = np.zeros(self.info.shape, dtype=np.uint8)
        for _ in range(2):
            started = time.perf_counter()
            self.engine.votes(blank, 0, Phase.PILOT, 0, copies)
        return (time.perf_counter() - started) / copies

    def predict(self, image: Pixels, index: int | None = None) -> algorithm.Prediction:
        """PREDICT one image with n noisy copies: a class, or an abstention."""
        sampler = self._sampler(image, index)
        return algorithm.predict(
            sampler, n=self.config.n, alpha=self.config.alpha, correction=self.correction
        )

    def confidence(
        self,
        image: Pixels,
        radius: float,
        index: int | None = None,
        *,
        method: ConfidenceMethod = "distribution",
    ) -> Confidence:
        """How sure the ensemble stays within `radius`: a bound on the mean probability, over the noise, that
        the softmax of its mean logits gives to the class that n0 copies choose. n fresh copies bound it."""
        if self.theorem.norm != "l2" or self.config.rule != ENSEMBLE:
            got = f"{self.config.noise} noise and rule {self.config.rule}"
            raise ConfigError(
                "Gaussian noise and the rule ensemble", got, "confidence is certified for these"
            )
        check_radius(radius)
        config, sampler = self.config, self._sampler(image, index)
        prediction = algorithm.top_class(algorithm.draw(sampler, Phase.SELECTION, config.n0))
        scores = sampler.scores(Phase.SCORES, config.n, prediction)
        lower = confidence_lower(
            scores,
            radius,
            sigma=config.sigma,
            alpha=config.alpha,
            correction=self.correction,
            method=method,
        )
        return Confidence(prediction, radius, lower, float(scores.mean()), config.n)

    def _sampler(self, image: Pixels, index: int | None, ask: Ask | None = None) -> ImageSampler:
        self._check(image)
        key = content_key(image) if index is None else index
        return ImageSampler(self.engine, image, key, self.config.rule, ask or self._asking())

    def _asking(self, on_votes: OnVotes | None = None) -> Ask:
        """Votes straight from the engine, for one image at a time."""

        def ask(request: Request) -> Votes:
            votes = self.engine.votes_of([request])[0]
            if on_votes:
                on_votes(request.count)
            return votes

        return ask

    def _check(self, image: Pixels) -> None:
        if image.shape != self.info.shape:
            raise DataError(
                f"an image of {_size(self.info.shape)}",
                _size(image.shape),
                "resize or crop it as in training",
            )


def _sharing(seconds: float, found: Sequence[Certified]) -> list[Certified]:
    """The time that they took together, shared out by the copies that each needed."""
    copies = sum(each.copies for each in found)
    return [replace(each, seconds=seconds * each.copies / copies) for each in found]


def content_key(image: Pixels) -> int:
    """A noise key for an image that belongs to no data set: the same image always gets the same answer."""
    return int.from_bytes(hashlib.sha256(image.tobytes()).digest()[:8], "little") >> 1


def _size(shape: tuple[int, ...]) -> str:
    return "x".join(str(side) for side in shape) + " (channels x height x width)"
