"""Tries to prove certificates wrong: attacks inside the certified balls, then outside, judged by PREDICT.

The judge's noise has keys that neither the certification nor the attack has seen, so that each judgement of
an attacked image is an independent test with an error probability of its own.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from math import sqrt

from smoothheads import device as devices
from smoothheads.attack.ascend import ascend, move, squared_distance
from smoothheads.attack.outcome import Attacked, AttackOutcome, Claim
from smoothheads.attack.settings import AttackSettings
from smoothheads.certify.bounds import squared_grid_budget
from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import ConversionCache, ConvertedModel
from smoothheads.data import Dataset
from smoothheads.errors import ConfigError, DataError
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.attack import frozen
from smoothheads.seeding import derive, generator
from smoothheads.types import ABSTAIN, Pixels


def falsify(
    model: MultiHead,
    dataset: Dataset,
    claims: Sequence[Claim],
    certified: CertifyConfig,
    settings: AttackSettings,
    *,
    converted: tuple[ConvertedModel, ...] = (),
) -> Generator[Attacked, None, None]:
    """Attacks every claim of a certification and yields what was found.

    What is found on an image depends on nothing but the image, the claim and the settings. When the generator
    ends, also after an error, the model's mode and parameters are as they were.

    Args:
        model: The network whose gradients lead the attack.
        converted: The converted network that was certified, if it was converted; the judge asks it.
    """
    norm = certified.law.norm
    if norm != "l2":
        raise ConfigError(
            f"Attacks are for l2 certificates, and {certified.noise} noise gives {norm} ones; attack a "
            "ledger of Gaussian noise (grid or gaussian)."
        )
    # What the data set does not hold is refused before the first attack.
    positions = {index: position for position, index in enumerate(dataset.indices.tolist())}
    for claim in claims:
        label = int(dataset.labels[positions[claim.index]]) if claim.index in positions else None
        if label != claim.label:
            found = "is not there" if label is None else f"has label {label}"
            raise DataError(
                f"Image {claim.index} of {dataset.info.name} {found}, and the ledger says label "
                f"{claim.label}; use the data that was certified."
            )
    with frozen(model), devices.threads(certified.threads):
        cache = ConversionCache(given=converted)
        judge = Certifier(model, dataset.info, judging(certified, settings), cache=cache)
        for claim in claims:
            image = dataset.image(positions[claim.index])
            yield _Target(model, judge, settings, image, claim).attack()


def outcome(
    attacked: Sequence[Attacked], q: int, certified: CertifyConfig, settings: AttackSettings
) -> AttackOutcome:
    """Returns the outcome at the level that a sound certification keeps.

    A certificate is wrong with probability alpha, and so is each of the judgements inside, one per loss.
    """
    level = certified.alpha + len(settings.losses) * settings.alpha
    return AttackOutcome(tuple(attacked), q, level)


def judging(certified: CertifyConfig, settings: AttackSettings) -> CertifyConfig:
    """Returns settings of the same smoothed classifier, sampled n times under noise of its own."""
    # Noise that neither the certification nor the attack has seen.
    seed = derive(settings.seed, "attack", "judge")
    fixed = certified.changed(budget="fixed", label_aware=False)
    return replace(fixed, alpha=settings.alpha, seed=seed, n0=None, n=settings.n)


_Broken = tuple[int, int]
"""Squared distance of an image to which the judge gives another class than claimed, and that class."""


@dataclass(frozen=True, slots=True)
class _Target:
    """One image under attack."""

    model: MultiHead
    judge: Certifier
    settings: AttackSettings
    image: Pixels
    claim: Claim

    def attack(self) -> Attacked:
        claim = self.claim
        if claim.abstained:
            return Attacked(claim, -1)
        budget = self._budget(claim.radius)

        # Inside the certified ball: at most alpha of these attacks may succeed. A file may have rounded the
        # radius down to nothing, and then nothing is claimed.
        inside, broken = None, None
        if claim.radius > 0:
            inside, broken = self._attack_at(claim.radius, low=0, inside=True)

        # Outside, at growing radii until an attack succeeds. Once the claim is broken, more judgements cannot
        # count against it a second time; and the upper curve counts no wrong predictions.
        if broken is None and claim.correct:
            low = max(budget, 0)
            for radius in self.settings.outside(self.judge.config.sigma):
                if radius > claim.radius and broken is None:
                    _, broken = self._attack_at(radius, low, inside=False)
                    low = self._budget(radius)
        return Attacked(claim, budget, inside, *(broken or ()))

    def _attack_at(self, radius: float, low: int, *, inside: bool) -> tuple[int, _Broken | None]:
        """Attacks once with each loss, as far out as the radius allows.

        Returns the farthest squared distance of the attacked images, and the nearest broken one.

        Args:
            low: A squared distance at which nothing was found before.
            inside: Whether points inside the certified ball are judged.
        """
        config, grid = self.judge.config, self.judge.info.grid
        farthest, nearest = 0, list[_Broken]()
        # 1. A direction from each loss. The attack draws noise of its own, from a stream for this attack.
        device = devices.parse(config.device)
        directions = [
            ascend(
                self.model,
                self.image,
                self.claim.prediction,
                grid=grid,
                sigma=config.sigma,
                radius=radius,
                draws=self.settings.draws,
                steps=self.settings.steps,
                generator=generator(
                    self.settings.seed, "attack", self.claim.index, loss, radius.hex(), device=device
                ),
                loss=loss,
                aggregation=config.aggregation,
            )
            for loss in self.settings.losses
        ]
        for direction in directions:
            # 2. The farthest image along the direction that the radius allows.
            point = move(self.image, direction, self._budget(radius), grid)
            farthest = max(farthest, squared_distance(self.image, point))
            # 3. Fresh noise decides whether the smoothed classifier gives this image another class.
            broken, near = self._judge(point, inside=inside), low
            # 4. A successful attack is brought nearer along its direction: its distance is halved towards
            # `near`, at which nothing was found.
            for _ in range(self.settings.halvings if broken is not None else 0):
                assert broken is not None
                middle = int(((sqrt(near) + sqrt(broken[0])) / 2) ** 2)
                if middle <= near:
                    break
                nearer = self._judge(move(self.image, direction, middle, grid), inside=inside)
                near, broken = (middle, broken) if nearer is None else (near, nearer)
            nearest += [] if broken is None else [broken]
        return farthest, min(nearest, key=lambda each: each[0], default=None)

    def _judge(self, point: Pixels, *, inside: bool) -> _Broken | None:
        """Returns the point if PREDICT gives it another class than claimed, with confidence.

        The test against alpha counts one judgement per loss inside the ball, so an attack from outside that
        ends up there is not judged.
        """
        squared = squared_distance(self.image, point)
        if not inside and squared <= self._budget(self.claim.radius):
            return None
        prediction = self.judge.predict(point).prediction  # noise keyed by the attacked image's content
        if prediction in (ABSTAIN, self.claim.prediction):
            return None
        return squared, prediction

    def _budget(self, radius: float) -> int:
        return squared_grid_budget(radius, self.judge.info.grid.max_value)
