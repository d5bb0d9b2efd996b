"""The work behind a request as short steps for the scheduler, and its outcome as plain data."""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from smoothheads.errors import ConfigError, suggest
from smoothheads.serve import images
from smoothheads.serve.asked import ClientRequest
from smoothheads.serve.metrics import Metrics
from smoothheads.serve.network import Answer, Moment, ServedNetwork, Settings, class_name, open_network
from smoothheads.types import ABSTAIN, format_radius

if TYPE_CHECKING:
    from smoothheads.types import Pixels, Votes

KEPT = 2  # networks in memory at a time
FRAMES = 26


class Networks:
    """The classifiers by the names that clients use; opened when they are first asked, by the scheduler's
    thread."""

    def __init__(self, folders: Callable[[], Mapping[str, Path]], settings: Settings) -> None:
        self._folders, self.settings = folders, settings
        self._open: OrderedDict[str, ServedNetwork] = OrderedDict()
        self._facts: dict[str, dict[str, Any]] = {}

    @property
    def names(self) -> list[str]:
        return list(self._folders())

    def folder(self, name: str | None) -> Path:
        """None is the first. Raises ConfigError for an unknown name: it is never taken for a path."""
        return self._find(name)[1]

    def facts(self, name: str | None) -> dict[str, Any] | None:
        """What a network said of itself when it was opened."""
        return self._facts.get(self._find(name)[0])

    def get(self, name: str | None) -> ServedNetwork:
        name, folder = self._find(name)
        if name not in self._open:
            self._open[name] = open_network(folder, self.settings)
            self._facts[name] = self._open[name].facts()
        self._open.move_to_end(name)
        while len(self._open) > KEPT:
            self._open.popitem(last=False)
        return self._open[name]

    def _find(self, name: str | None) -> tuple[str, Path]:
        folders = self._folders()
        if not folders:
            raise ConfigError("a classifier to ask", "none in this folder", "serve a checkpoint or an export")
        name = next(iter(folders)) if name is None else name
        if name not in folders:
            raise ConfigError("a known model", repr(name)[:80], suggest(name[:80], folders))
        return name, folders[name]


@dataclass(frozen=True, slots=True)
class News:
    """Something to tell: of which image of the request, what kind of news, and the data."""

    image: int
    kind: str
    data: dict[str, Any]


_QUIET = News(-1, "quiet", {})


def opened(networks: Networks, name: str | None) -> Iterator[dict[str, Any]]:
    yield networks.get(name).facts()


def certify(networks: Networks, asked: ClientRequest, metrics: Metrics) -> Iterator[News]:
    """A `start` and then `moment`s for every image."""
    network, decoded = yield from _opened(networks, asked)
    n = asked.n or networks.settings.n
    for i, image in enumerate(decoded):
        yield News(i, "start", _start(network, image))
        seen = 0
        for moment in network.certify(image, n=n, target=asked.radius):
            metrics.add_samples(moment.certificate.n - seen)
            seen = moment.certificate.n
            yield News(i, "moment", certified(network, moment))
        metrics.add_image()


def predict(networks: Networks, asked: ClientRequest, metrics: Metrics) -> Iterator[News]:
    network, decoded = yield from _opened(networks, asked)
    n = asked.n or min(1000, networks.settings.n)
    for i, image in enumerate(decoded):
        yield News(i, "start", _start(network, image))
        seen = 0
        for answer in network.predict(image, n=n):
            metrics.add_samples(answer.votes.n - seen)
            seen = answer.votes.n
            final = answer.prediction is not None
            yield News(i, "answer", predicted(network, answer)) if final else _QUIET
        metrics.add_image()


def attack(networks: Networks, asked: ClientRequest, metrics: Metrics) -> Iterator[News]:
    """`frame`s of the first image, pushed farther and farther away from its class."""
    network, decoded = yield from _opened(networks, asked)
    image = decoded[0]
    radius = asked.radius if asked.radius < float("inf") else 2 * network.sigma
    yield News(0, "start", _start(network, image) | {"radius": radius})
    for frame in network.attack(image, radius=radius, frames=FRAMES, n=asked.n or 500):
        if frame is None:
            yield _QUIET
            continue
        metrics.add_samples(frame.answer.votes.n)
        seen = {"distance": frame.distance, "picture": _picture(network, frame.image)}
        yield News(0, "frame", seen | predicted(network, frame.answer))
    metrics.add_image()


def certified(network: ServedNetwork, moment: Moment) -> dict[str, Any]:
    """A certificate as plain data; its radius is rounded down."""
    certificate = moment.certificate
    return {
        **_prediction(network, certificate.prediction),
        "radius": float(format_radius(certificate.radius)),
        "p_lower": certificate.p_lower,
        "k": certificate.k,
        "n": certificate.n,
        "n0": certificate.n0,
        **_votes(network, moment.votes),
    }


def predicted(network: ServedNetwork, answer: Answer) -> dict[str, Any]:
    prediction = ABSTAIN if answer.prediction is None else answer.prediction
    return {**_prediction(network, prediction), "n": answer.votes.n, **_votes(network, answer.votes)}


def _prediction(network: ServedNetwork, prediction: int) -> dict[str, Any]:
    abstained = prediction == ABSTAIN
    return {
        "class": class_name(network.info, prediction),
        "prediction": None if abstained else int(prediction),
        "abstained": abstained,
    }


def _votes(network: ServedNetwork, votes: Votes) -> dict[str, Any]:
    heads = {rule: votes.for_rule(rule).tolist() for rule in votes.rules if rule.startswith("head-")}
    return {"votes": votes.for_rule(network.rule).tolist(), "heads": heads}


def _opened(
    networks: Networks, asked: ClientRequest
) -> Generator[News, None, tuple[ServedNetwork, list[Pixels]]]:
    network = networks.get(asked.model)
    yield News(-1, "facts", network.facts())
    decoded = []
    for source in asked.images:
        decoded.append(source(network.info))
        yield _QUIET
    return network, decoded


def _start(network: ServedNetwork, image: Pixels) -> dict[str, Any]:
    return {"picture": _picture(network, image)}


def _picture(network: ServedNetwork, image: Pixels) -> str:
    data = base64.b64encode(images.png(image, network.info.grid)).decode()
    return f"data:image/png;base64,{data}"
