"""The classifiers that are served: opened, sampled and attacked in short steps for the scheduler.

Everything here computes, and is called by the scheduler's thread alone.
"""

from __future__ import annotations

import base64
import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from smoothheads import device as devices
from smoothheads.attack.ascend import ascend, move, squared_distance
from smoothheads.certify import algorithm
from smoothheads.certify.bounds import squared_grid_budget
from smoothheads.certify.budgets import AnytimeBudget
from smoothheads.checkpoint import WEIGHTS, checkpoint_folder, trained_config
from smoothheads.data import DataInfo, Dataset, load_test
from smoothheads.errors import ConfigError, SmoothheadsError, suggest
from smoothheads.models.adapters import BlackBox
from smoothheads.runs.models import from_pretrained, is_export
from smoothheads.seeding import generator
from smoothheads.serve import images
from smoothheads.smoothed import Smoothed
from smoothheads.types import ABSTAIN, Phase, Pixels, Votes, format_radius

OPEN_NETWORKS = 2
"""Networks in memory at a time."""
ATTACK_STEPS, ATTACK_DRAWS, FRAMES = 10, 16, 26
USUAL_SAMPLES: Mapping[str, int] = {"predict": 1000, "attack": 500}
"""Samples where a request names none; a certificate takes as many as it may."""

Task = Literal["certify", "predict", "attack"]


@dataclass(frozen=True, slots=True)
class Event:
    """Tells the client about one step of the work."""

    image: int
    """Position of the image in the request."""
    kind: str
    data: dict[str, Any]
    samples: int = 0
    """Noisy samples that the step took."""


class ServedNetwork:
    """A smoothed classifier that works in steps of one pass."""

    def __init__(self, smoothed: Smoothed) -> None:
        self._smoothed, self._certifier = smoothed, smoothed.certifier
        self.info, self.sigma = smoothed.info, smoothed.config.sigma

    def facts(self) -> dict[str, Any]:
        """Returns what a client must know to read an answer."""
        config, info = self._smoothed.config, self.info
        return {
            "data": info.name,
            "shape": list(info.shape),
            "grid": info.grid.max_value,
            "classes": list(info.class_names),
            "sigma": config.sigma,
            "alpha": config.alpha,
            "aggregation": config.aggregation,
            "aggregations": list(self._certifier.counter.aggregations),
            "noise": self._certifier.law.name,
            "norm": self._certifier.law.norm,
            "scope": self._certifier.noise.scope,
            "notes": list(self._smoothed.notes),
        }

    def certify(self, image: Pixels, *, n: int, target: float | None = None, at: int = 0) -> Iterator[Event]:
        """Yields certificates that hold at every moment, one per pass; their radii only grow.

        Args:
            target: Radius at which it stops; None goes on to n.
        """
        # Any reason to stop is a good one: with probability 1 - alpha every certificate on the way holds.
        budget = AnytimeBudget(n=n, target=target)
        seen = 0
        for pending in self._certifier.steps(budget.run, image):
            certificate = pending.result if pending.request is None else pending.partial
            if certificate is None:
                continue
            moment = self._answer(certificate.prediction, pending.votes(Phase.ESTIMATION))
            moment |= {name: getattr(certificate, name) for name in ("p_lower", "k", "n", "n0")}
            moment["radius"] = float(format_radius(certificate.radius))  # rounded down
            yield Event(at, "moment", moment, certificate.n - seen)
            seen = certificate.n

    def attack(self, image: Pixels, *, radius: float, n: int) -> Iterator[Event]:
        """Pushes the image away from its class, and yields the predictions on the way as frames.

        Args:
            radius: Farthest l2 distance.
        """
        if (norm := self._certifier.law.norm) != "l2":
            raise ConfigError(f"Attacks are for l2 radii; this network has {norm} radii.")
        # Step 1: the class that is attacked has the most votes on the image itself.
        label = 0
        for event in self.predict(image, n=n):
            if event.kind == "answer":
                label = int(np.argmax(event.data["votes"]))
            yield Event(-1, "quiet", {}, event.samples)
        # Step 2: the direction that hurts most, gradient ascent on the smoothed loss of that class.
        direction = self._direction(image, label, radius)
        yield Event(-1, "quiet", {})
        # Step 3: farther and farther along it, by distances that the integer grid can represent.
        q, seen = self.info.grid.max_value, -1
        for i in range(FRAMES):
            budget = squared_grid_budget(radius * i / (FRAMES - 1), q) if i else 0
            pushed = move(image, direction, budget, self.info.grid) if budget > 0 else image
            squared = squared_distance(image, pushed)
            # On a coarse grid several budgets allow no more than the same change.
            if squared != seen:
                shown = {"distance": math.sqrt(squared) / q, "picture": self.picture(pushed)}
                for event in self.predict(pushed, n=n):
                    yield replace(event, kind="frame", data=shown | event.data) if event.data else event
            seen = squared

    def predict(self, image: Pixels, *, n: int, at: int = 0) -> Iterator[Event]:
        """Runs PREDICT (Cohen et al., Algorithm 1): a quiet event per pass, and the prediction at the end."""
        config = self._smoothed.config

        def run(_: Any) -> algorithm.Run[int]:
            # All n samples are counted first, in blocks so that others get their turn, and tested once.
            counts = np.zeros(self.info.classes, dtype=np.int64)
            for first in range(0, n, config.block):
                counts += yield algorithm.Samples(Phase.ESTIMATION, min(config.block, n - first))
            test = algorithm.predict(n=n, alpha=config.alpha, correction=self._certifier.correction)
            return algorithm.run_budget(test, lambda *_: counts).prediction

        seen = 0
        for pending in self._certifier.steps(run, image):
            votes = pending.votes(Phase.ESTIMATION)
            if pending.request is None:
                yield Event(at, "answer", self._answer(pending.result, votes), votes.n - seen)
            else:
                yield Event(-1, "quiet", {}, votes.n - seen)
            seen = votes.n

    def picture(self, image: Pixels) -> str:
        """Returns the image as the page shows it."""
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
            "votes": votes.for_aggregation(self._smoothed.config.aggregation).tolist(),
            "heads": {head: votes.for_aggregation(head).tolist() for head in heads},
        }

    def _direction(self, image: Pixels, label: int, radius: float) -> NDArray[np.float64]:
        config, model = self._smoothed.config, self._smoothed.model
        assert not isinstance(model, BlackBox), "only checkpoints and exports are served"
        with devices.threads(config.threads):
            return ascend(
                model,
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


class Networks:
    """The classifiers by the names that clients use; the scheduler's thread opens them when needed.

    Args:
        folders: Lists the folders of the classifiers by name.
        sigma: Standard deviation of the noise for checkpoints; None takes that of the training.
        alpha: Probability that a certificate is wrong; None takes 0.001, or that of an export.
        threads: Threads of a checkpoint's network; an export states its own.
    """

    def __init__(
        self,
        folders: Callable[[], Mapping[str, Path]],
        *,
        n: int,
        sigma: float | None = None,
        alpha: float | None = None,
        threads: int = 1,
    ) -> None:
        self._folders, self.n, self._threads = folders, n, threads
        # The secret that keys the noise is the server's. A network that is closed and opened again gives the
        # same votes, so that nobody can ask until the noise is unlucky.
        self.seed = secrets.randbits(63)
        changes = {"n": n, "seed": self.seed, "sigma": sigma, "alpha": alpha}
        self._changes: dict[str, Any] = {name: value for name, value in changes.items() if value is not None}
        self._open = lru_cache(OPEN_NETWORKS)(self._load)
        self._known: dict[str, tuple[DataInfo, dict[str, Any]]] = {}

    def listing(self) -> dict[str, Any]:
        """Returns the names of all networks, what they are, and the one that the page begins with."""
        kinds = {name: _kind(folder) for name, folder in self._folders().items()}
        # The first one with several heads, else the first.
        several = [name for name, kind in kinds.items() if "heads" in kind]
        return {
            "models": list(kinds),
            "default": next(iter([*several, *kinds]), None),
            "descriptions": kinds,
        }

    def folder(self, name: str | None) -> Path:
        """Returns the folder of a network, of the first one for None; a name is never taken for a path."""
        return self._find(name)[1]

    def facts(self, name: str | None) -> tuple[DataInfo, dict[str, Any]] | None:
        """Returns the image size and the facts of a network that has been opened before."""
        return self._known.get(self._find(name)[0])

    def get(self, name: str | None) -> ServedNetwork:
        """Opens a network, or returns one that is open; the one that was used longest ago is closed."""
        return self._open(*self._find(name))

    def _load(self, name: str, folder: Path) -> ServedNetwork:
        changes = self._changes | ({} if is_export(folder) else {"threads": self._threads})
        network = ServedNetwork(from_pretrained(folder, **changes))
        self._known[name] = network.info, network.facts()
        return network

    def _find(self, name: str | None) -> tuple[str, Path]:
        folders = self._folders()
        if not folders:
            raise ConfigError("There is no classifier in this folder: serve a checkpoint or an export.")
        name = next(iter(folders)) if name is None else name
        if name not in folders:
            raise ConfigError(f"There is no model {name[:80]!r}; {suggest(name[:80], folders)}.")
        return name, folders[name]

    def opened(self, name: str | None) -> Iterator[tuple[DataInfo, dict[str, Any]]]:
        """Yields image size and facts, as work for the scheduler."""
        network = self.get(name)
        yield network.info, network.facts()

    def work(
        self, task: Task, name: str | None, pixels: Sequence[Pixels], n: int | None, radius: float | None
    ) -> Iterator[Event]:
        """Yields the events of certifying, predicting or attacking images.

        Args:
            name: The network; the first one for None.
            n: Samples per image; None takes what is usual for the task.
            radius: Radius at which a certificate stops, or to which an attack goes.
        """
        network = self.get(name)
        most = min(n or USUAL_SAMPLES.get(task, self.n), self.n)
        for at, image in enumerate(pixels):
            yield Event(at, "start", {"picture": network.picture(image)})
            if task == "certify":
                yield from network.certify(image, n=most, target=radius, at=at)
            elif task == "predict":
                yield from network.predict(image, n=most, at=at)
            else:
                yield from network.attack(image, n=most, radius=radius or 2 * network.sigma)


def is_network(folder: Path) -> bool:
    """Returns whether a folder holds a checkpoint, a training run or an export."""
    return is_export(folder) or (checkpoint_folder(folder) / WEIGHTS).is_file()


def load_images(network: Path) -> Dataset:
    """Returns the test images of the data set that a network was trained on, if it is still there."""
    return load_test(trained_config(network).data)


def _kind(folder: Path) -> str:
    """Returns in a few words what a network is; nothing where its configuration does not say."""
    try:
        model = trained_config(folder).model
    except SmoothheadsError:
        return ""
    if model.heads == 1:
        return "single network"
    # Heads that share nothing are networks of their own.
    return f"{model.heads} networks" if model.cut == "input" else f"SOME, {model.heads} heads"
