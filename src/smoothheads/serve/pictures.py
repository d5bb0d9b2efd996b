"""Test images of the data sets that the networks here were trained on, where these still are."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from smoothheads.checkpoint.folder import trained_config
from smoothheads.data import Dataset, load_test
from smoothheads.errors import SmoothheadsError
from smoothheads.results.results import Results
from smoothheads.serve import images
from smoothheads.serve.catalogue import Remembered
from smoothheads.serve.logs import data_name

SEEN = 2000  # images among which the samples are chosen


class Pictures:
    """Data sets are read once for every network."""

    def __init__(self) -> None:
        self.dataset = Remembered(lambda folder: load_test(trained_config(folder).data))

    def of(self, log: Results, index: int, networks: Iterable[Path]) -> bytes | None:
        """The image that a log is about, by the first network that was trained on the same data set."""
        name = data_name(log)
        for folder in networks:
            try:
                if trained_config(folder).data.name == name:
                    return picture(self.dataset(folder), index)
            except (SmoothheadsError, OSError):
                continue
        return None


def picture(dataset: Dataset, index: int) -> bytes | None:
    """PNG of the image with that index in its split."""
    places = (dataset.indices == index).nonzero()[0]
    return images.png(dataset.image(int(places[0])), dataset.info.grid) if len(places) else None


def samples(dataset: Dataset, count: int) -> list[dict[str, Any]]:
    """Some images to try, of every class in turn."""
    by_class: dict[int, list[int]] = {}
    for position, label in enumerate(dataset.labels[:SEEN].tolist()):
        by_class.setdefault(label, []).append(position)
    rounds = max(map(len, by_class.values()), default=0)
    turns = (by_class[label][i : i + 1] for i in range(rounds) for label in sorted(by_class))
    chosen = [position for turn in turns for position in turn][:count]
    return [
        {
            "index": int(dataset.indices[position]),
            "label": int(dataset.labels[position]),
            "class": dataset.info.class_names[int(dataset.labels[position])],
        }
        for position in chosen
    ]
