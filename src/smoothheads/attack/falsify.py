"""Tries to prove certificates wrong: attacks inside the certified balls, then outside, judged by PREDICT.

The judge's noise has keys that neither the certification nor the attack has seen, so that each judgement of
an attacked image is an independent test with an error probability of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
import torch
from numpy.typing import NDArray

from smoothheads import device as devices
from smoothheads.attack.grid import move, squared_distance
from smoothheads.attack.outcome import Attacked, AttackOutcome, Claim
from smoothheads.attack.settings import AttackSettings
from smoothheads.attack.smoothed import ascend
from smoothheads.certify.budgets import FixedBudget
from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import Artefacts, Network, Store
from smoothheads.certify.radius import squared_grid_budget
from smoothheads.data import DataInfo, Dataset
from smoothheads.errors import ConfigError, DataError
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.attack import frozen
from smoothheads.seeding import derive, generator
from smoothheads.types import ABSTAIN, Pixels

OnImage = Callable[[Attacked], None]


def falsify(
    model: MultiHead,
    dataset: Dataset,
    claims: Sequence[Claim],
    certified: CertifyConfig,
    settings: AttackSettings,
    *,
    artefacts: Artefacts | None = None,
    done: Sequence[Attacked] = (),
    on_image: OnImage | None = None,
) -> AttackOutcome:
    """Attacks every claim of a certification that was made with `certified`; those in `done` are taken over.
    `artefacts` are the converted networks that were certified, if they were converted: the judge asks them.

    What is found on an image depends on nothing but the image, the claim and the settings. Afterwards, also
    after an error, the model's mode and parameters are as they were.
    """
    _require_l2(certified)
    known = {attacked.claim: attacked for attacked in done}
    images = _images(dataset, [claim for claim in claims if claim not in known])
    attacked = []
    with frozen(model), devices.threads(certified.engine.threads):
        judge = _judge(model, dataset.info, judging(certified, settings), Store(given=artefacts or ()))
        for claim in claims:
            if claim not in known:
                known[claim] = _Target(model, judge, settings, images(claim), claim).attacked()
                if on_image:
                    on_image(known[claim])
            attacked.append(known[claim])
    return outcome(attacked, dataset.info.grid.max_value, certified, settings)


def outcome(
    attacked: Sequence[Attacked], q: int, certified: CertifyConfig, settings: AttackSettings
) -> AttackOutcome:
    level = certified.alpha + len(settings.losses) * settings.alpha
    return AttackOutcome(tuple(attacked), q, level)


def judging(certified: CertifyConfig, settings: AttackSettings) -> CertifyConfig:
    """The same smoothed classifier, sampled n times under noise of its own."""
    return replace(
        certified,
        alpha=settings.alpha,
        seed=derive(settings.seed, "attack", "judge"),
        budget=FixedBudget(n=settings.n),
    )


def _judge(model: MultiHead, info: DataInfo, config: CertifyConfig, store: Store) -> Certifier:
    assert config.seed is not None
    noise = config.noise.keyed(config.sigma, info.grid, config.seed, config.block)
    network = Network(model, info, noise, config.aggregation, store)
    return Certifier(config.engine.build(network), info, config, repeatable=True)


@dataclass(frozen=True, slots=True)
class _Other:
    """An image that is confidently called another class than claimed."""

    squared: int
    answer: int


_Judge = Callable[[Pixels], _Other | None]


def _least(others: Sequence[_Other | None]) -> _Other | None:
    broken = [other for other in others if other is not None]
    return min(broken, key=lambda other: other.squared, default=None)


@dataclass(frozen=True, slots=True)
class _Target:
    """One image under attack."""

    model: MultiHead
    judge: Certifier
    settings: AttackSettings
    image: Pixels
    claim: Claim

    @property
    def budget(self) -> int:
        return self._budget(self.claim.radius)

    def attacked(self) -> Attacked:
        if self.claim.abstained:
            return Attacked(self.claim, -1)
        inside, broken = None, None
        if self.claim.radius > 0:  # a file may have rounded it down to nothing
            # Once the claim is broken, more judgements inside cannot count against it a second time.
            inside, broken = self._attack(self.claim.radius, 0, self._judge)
        if broken is None and self.claim.correct:  # the upper curve counts no wrong answers
            broken = self._outside()
        if broken is None:
            return Attacked(self.claim, self.budget, inside)
        return Attacked(self.claim, self.budget, inside, broken.squared, broken.answer)

    def _outside(self) -> _Other | None:
        """Of the growing radii, the first at which an attack succeeds, brought nearer."""
        low = max(self.budget, 0)
        for radius in self.settings.outside(self.judge.config.sigma):
            if radius > self.claim.radius:
                _, broken = self._attack(radius, low, self._judge_outside)
                if broken is not None:
                    return broken
                low = self._budget(radius)
        return None

    def _attack(self, radius: float, low: int, judge: _Judge) -> tuple[int, _Other | None]:
        """One image per loss, as far out as the radius allows: the farthest squared distance of them, and the
        nearest other answer, brought nearer."""
        directions = list(self._directions(radius))
        points = [self._move(direction, self._budget(radius)) for direction in directions]
        others = [judge(point) for point in points]
        nearer = [self._nearer(other, d, low, judge) for other, d in zip(others, directions, strict=True)]
        return max(squared_distance(self.image, point) for point in points), _least(nearer)

    def _nearer(
        self, other: _Other | None, direction: NDArray[np.float64], low: int, judge: _Judge
    ) -> _Other | None:
        """Halves its distance along the direction towards `low`, at which nothing was found."""
        for _ in range(self.settings.halvings):
            if other is None:
                break
            middle = int(((sqrt(low) + sqrt(other.squared)) / 2) ** 2)
            if middle <= low:
                break
            nearer = judge(self._move(direction, middle))
            low, other = (middle, other) if nearer is None else (low, nearer)
        return other

    def _directions(self, radius: float) -> Iterator[NDArray[np.float64]]:
        for loss in self.settings.losses:
            yield ascend(
                self.model,
                self.image,
                self.claim.prediction,
                grid=self.judge.info.grid,
                sigma=self.judge.config.sigma,
                radius=radius,
                draws=self.settings.draws,
                steps=self.settings.steps,
                generator=self._generator(loss, radius),
                loss=loss,
                aggregation=self.judge.config.aggregation,
            )

    def _generator(self, loss: str, radius: float) -> torch.Generator:
        path = ("attack", self.claim.index, loss, radius.hex())
        return generator(self.settings.seed, *path, device=devices.parse(self.judge.config.device))

    def _judge_outside(self, point: Pixels) -> _Other | None:
        """Inside the ball nothing more is judged: the test against alpha counts the judgements there."""
        return self._judge(point) if squared_distance(self.image, point) > self.budget else None

    def _judge(self, point: Pixels) -> _Other | None:
        answer = self.judge.predict(point).prediction  # noise keyed by the attacked image's content
        if answer in (ABSTAIN, self.claim.prediction):
            return None
        return _Other(squared_distance(self.image, point), answer)

    def _move(self, direction: NDArray[np.float64], budget: int) -> Pixels:
        return move(self.image, direction, budget, self.judge.info.grid)

    def _budget(self, radius: float) -> int:
        return squared_grid_budget(radius, self.judge.info.grid.max_value)


def _require_l2(certified: CertifyConfig) -> None:
    norm = certified.noise.norm
    if norm != "l2":
        raise ConfigError(
            "certificates in the l2 norm",
            f"{norm} certificates of {certified.noise.name} noise",
            "attack a ledger of Gaussian noise (grid or gaussian)",
        )


def _images(dataset: Dataset, claims: Sequence[Claim]) -> Callable[[Claim], Pixels]:
    """Looks up a claim's image; refuses before the first attack what the data set does not hold."""
    positions = {index: position for position, index in enumerate(dataset.indices.tolist())}
    for claim in claims:
        if claim.index not in positions:
            raise DataError(
                f"image {claim.index} in {dataset.info.name}", "none", "use the data that was certified"
            )
        label = int(dataset.labels[positions[claim.index]])
        if label != claim.label:
            raise DataError(
                f"label {claim.label} for image {claim.index}", f"{label}", "use the data that was certified"
            )
    return lambda claim: dataset.image(positions[claim.index])
