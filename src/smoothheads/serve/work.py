"""The work behind a request as short steps for the scheduler, and its outcome as plain data."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from smoothheads.errors import ConfigError, suggest
from smoothheads.serve.asked import ClientRequest
from smoothheads.serve.metrics import Metrics
from smoothheads.serve.network import ServedNetwork, Settings, Steps, open_network
from smoothheads.types import Pixels

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
    network, images = yield from _opened(networks, asked)
    for i, image in enumerate(images):
        yield News(i, "start", {"picture": network.picture(image)})
        steps = network.certify(image, n=asked.n or networks.settings.n, target=asked.radius)
        yield from _told(i, "moment", steps, metrics)


def predict(networks: Networks, asked: ClientRequest, metrics: Metrics) -> Iterator[News]:
    """A `start` and then an `answer` for every image."""
    network, images = yield from _opened(networks, asked)
    for i, image in enumerate(images):
        yield News(i, "start", {"picture": network.picture(image)})
        steps = network.predict(image, n=asked.n or min(1000, networks.settings.n))
        yield from _told(i, "answer", steps, metrics)


def attack(networks: Networks, asked: ClientRequest, metrics: Metrics) -> Iterator[News]:
    """`frame`s of the first image, pushed farther and farther away from its class."""
    network, (image, *_) = yield from _opened(networks, asked)
    radius = asked.radius if asked.radius < float("inf") else 2 * network.sigma
    yield News(0, "start", {"picture": network.picture(image), "radius": radius})
    steps = network.attack(image, radius=radius, frames=FRAMES, n=asked.n or 500)
    yield from _told(0, "frame", steps, metrics)


def _told(image: int, kind: str, steps: Steps, metrics: Metrics) -> Iterator[News]:
    for samples, data in steps:
        metrics.add(samples=samples)
        yield _QUIET if data is None else News(image, kind, data)
    metrics.add(images=1)


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
