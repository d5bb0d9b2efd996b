"""The classifiers that are served: the one place that knows how a network is opened, sampled and attacked.

Everything here computes; it is called by the scheduler's thread alone.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothheads import device as devices
from smoothheads.attack.grid import move, squared_distance
from smoothheads.attack.smoothed import ascend
from smoothheads.certify import algorithm
from smoothheads.certify.budgets import AnytimeBudget
from smoothheads.certify.radius import squared_grid_budget
from smoothheads.checkpoint.folder import WEIGHTS, checkpoint_folder
from smoothheads.errors import ConfigError
from smoothheads.runs.exported import from_pretrained, is_export
from smoothheads.seeding import generator
from smoothheads.serve import images
from smoothheads.smoothed import Smoothed
from smoothheads.types import ABSTAIN, Phase, Pixels, Votes, format_radius

ATTACK_STEPS, ATTACK_DRAWS = 10, 16


Steps = Iterator[tuple[int, dict[str, Any] | None]]
"""After every pass: the samples that it took, and what there is to tell a client, if anything."""


class ServedNetwork:
    """A smoothed classifier under a secret noise key."""

    def __init__(self, smoothed: Smoothed) -> None:
        self._smoothed = smoothed
        self.info, self.sigma, self.aggregation = (
            smoothed.info,
            smoothed.config.sigma,
            smoothed.config.aggregation,
        )

    def facts(self) -> dict[str, Any]:
        """What a client must know to read an answer."""
        config, info = self._smoothed.config, self.info
        return {
            "data": info.name,
            "shape": list(info.shape),
            "grid": info.grid.max_value,
            "classes": list(info.class_names),
            "sigma": config.sigma,
            "alpha": config.alpha,
            "aggregation": config.aggregation,
            "aggregations": list(self._smoothed.engine.aggregations),
            "noise": self._smoothed.law.name,
            "norm": self._smoothed.law.norm,
            "scope": self._smoothed.engine.noise.scope,
            "notes": list(self._smoothed.notes),
        }

    def certify(self, image: Pixels, *, n: int, target: float = math.inf) -> Steps:
        """Certificates that hold at every moment, one per pass; they only grow."""
        budget = AnytimeBudget(n=n, target=None if math.isinf(target) else target)
        seen = 0
        for flight in self._smoothed.steps(budget.run, image):
            certificate = flight.result if flight.request is None else flight.so_far
            if certificate is not None:
                told = {
                    **self._answer(certificate.prediction, flight.votes(Phase.ESTIMATION)),
                    "radius": float(format_radius(certificate.radius)),  # rounded down
                    **{name: getattr(certificate, name) for name in ("p_lower", "k", "n", "n0")},
                }
                yield certificate.n - seen, told
                seen = certificate.n

    def predict(self, image: Pixels, *, n: int) -> Steps:
        """Nothing to tell until the last pass, which gives the answer."""
        seen = 0
        for flight in self._smoothed.steps(lambda _: self._predicted(n), image):
            votes = flight.votes(Phase.ESTIMATION)
            yield votes.n - seen, None if flight.request is not None else self._answer(flight.result, votes)
            seen = votes.n

    def _predicted(self, n: int) -> algorithm.Run[int]:
        """PREDICT, asking block by block."""
        config = self._smoothed.config
        counts = np.zeros(self.info.classes, dtype=np.int64)
        for first in range(0, n, config.block):
            counts += yield algorithm.Samples(Phase.ESTIMATION, min(config.block, n - first))
        run = algorithm.predict(n=n, alpha=config.alpha, correction=self._smoothed.correction)
        return algorithm.answered(run, lambda *_: counts).prediction

    def attack(self, image: Pixels, *, radius: float, frames: int, n: int) -> Steps:
        """Pushes the image away from its class, up to `radius`, and tells what the classifier says there."""
        if (norm := self._smoothed.law.norm) != "l2":
            raise ConfigError("radii in the l2 norm", f"{norm} radii", "attack a network of Gaussian noise")
        label = 0
        for samples, answer in self.predict(image, n=n):
            label = label if answer is None else int(np.argmax(answer["votes"]))
            yield samples, None
        direction = self._direction(image, label, radius)
        yield 0, None
        q, seen = self.info.grid.max_value, -1
        for i in range(frames):
            budget = squared_grid_budget(radius * i / (frames - 1), q) if i else 0
            pushed = move(image, direction, budget, self.info.grid) if budget > 0 else image
            squared = squared_distance(image, pushed)
            if squared == seen:
                continue
            seen = squared
            shown = {"distance": math.sqrt(squared) / q, "picture": self.picture(pushed)}
            for samples, answer in self.predict(pushed, n=n):
                yield samples, None if answer is None else shown | answer

    def picture(self, image: Pixels) -> str:
        """For the page, as an address."""
        data = base64.b64encode(images.png(image, self.info.grid)).decode()
        return f"data:image/png;base64,{data}"

    def _answer(self, prediction: int, votes: Votes) -> dict[str, Any]:
        abstained = prediction == ABSTAIN
        heads = [aggregation for aggregation in votes.aggregations if aggregation.startswith("head-")]
        return {
            "class": None if abstained else self.info.class_names[prediction],
            "prediction": None if abstained else int(prediction),
            "abstained": abstained,
            "n": votes.n,
            "votes": votes.for_aggregation(self.aggregation).tolist(),
            "heads": {head: votes.for_aggregation(head).tolist() for head in heads},
        }

    def _direction(self, image: Pixels, label: int, radius: float) -> NDArray[np.float64]:
        config = self._smoothed.config
        with devices.threads(config.engine.threads):
            return ascend(
                self._smoothed.model,
                image,
                label,
                grid=self.info.grid,
                sigma=config.sigma,
                radius=radius,
                draws=ATTACK_DRAWS,
                steps=ATTACK_STEPS,
                generator=generator(0, "serve", "attack", device=devices.parse(config.device)),
                aggregation=config.aggregation,
            )


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the classifiers are opened. They draw the secret that keys their noise themselves."""

    sigma: float | None = None
    """Of checkpoints; none: as in training. An export has its own."""
    alpha: float | None = None
    n: int = 100_000
    threads: int = 1


def open_network(folder: Path, settings: Settings) -> ServedNetwork:
    """A checkpoint, a training run's folder or an export."""
    wanted = {"n": settings.n, "sigma": settings.sigma, "alpha": settings.alpha}
    changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    if not is_export(folder):
        changes["threads"] = settings.threads
    return ServedNetwork(from_pretrained(folder, **changes))


def is_network(folder: Path) -> bool:
    return is_export(folder) or (checkpoint_folder(folder) / WEIGHTS).is_file()
