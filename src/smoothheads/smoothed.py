"""The smoothed classifier as a Python user wants it: any network, any form of images, results at the end.

smoothed = Smoothed(net, test, sigma=0.25, n=10_000)
results = smoothed.certify(test)
answers = smoothed(images)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import Network, Store
from smoothheads.certify.engines.auto import choose
from smoothheads.data import DataInfo, Dataset, as_dataset, as_pixels
from smoothheads.errors import ConfigError
from smoothheads.models.multihead import as_multihead
from smoothheads.provenance import versions
from smoothheads.results.manifest import DataFacts, Manifest
from smoothheads.results.results import Results
from smoothheads.types import Certified, Grid

OnRecord = Callable[[Certified], None]


class Smoothed(Certifier):
    """`G(x)`, the class that the base classifier gives most often under noise of deviation `sigma`.

    `model` is any module that gives logits [N, classes] (or a MultiHead) for pixels in [0, 1]. What images it
    takes is said by `info` (a DataInfo, or a data set that has one) or by `shape` and `classes`. The settings
    are a `config`, or given by their names: `sigma`, `n`, `budget="table"`, `engine="auto"`, ...

    Images may be arrays or tensors, of grid integers or of floats in [0, 1] that lie on the grid, channels
    first or last, one or a batch. `store` is where an engine keeps networks that it converts. Where a setting
    says `auto` a trial decides, for `images` of them; `config` then has the choice and `notes` the reason.
    """

    def __init__(
        self,
        model: nn.Module,
        info: DataInfo | Dataset | None = None,
        config: CertifyConfig | None = None,
        *,
        shape: Sequence[int] | None = None,
        classes: int | Sequence[str] | None = None,
        max_value: int = 255,
        store: Store | None = None,
        images: int = 1,
        **settings: Any,
    ) -> None:
        self.model = as_multihead(model)
        facts = _facts(info, shape, classes, max_value)
        wanted = _settings(config, settings)
        seeded = wanted.seeded()
        assert seeded.seed is not None
        noise = seeded.noise.keyed(seeded.sigma, facts.grid, seeded.seed, seeded.block)
        network = Network(self.model, facts, noise, seeded.aggregation, store or Store())
        choice = choose(seeded.engine, network, samples=images * seeded.budget.typical_samples)
        self.notes = choice.notes
        super().__init__(
            choice.config.build(network),
            facts,
            seeded.changed(engine=choice.config),
            repeatable=wanted.seed is not None,
        )

    def __call__(self, images: Any) -> NDArray[np.int64]:
        """PREDICT a batch: classes [N], or ABSTAIN (-1) where the samples do not decide."""
        pixels = as_pixels(images, self.info)
        batch = pixels[None] if pixels.ndim == 3 else pixels
        return np.array([answer.prediction for answer in self.predict_all(list(batch))], dtype=np.int64)

    def certify(self, data: Any, labels: Any = None, *, on_record: OnRecord | None = None) -> Results:
        """Certifies every image of a data set, or of images and their labels."""
        dataset = as_dataset(data, labels, classes=self.info.class_names, max_value=self.info.grid.max_value)
        records = []
        for record in self.records(dataset):
            records.append(record)
            if on_record:
                on_record(record)
        return Results.of(dataset.info.name, records, self.manifest(dataset))

    def manifest(self, dataset: Dataset) -> Manifest:
        """Everything needed to repeat a certification of `dataset` or to refuse mixing it with another."""
        info = dataset.info
        return Manifest(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            certify=self.config,
            engine=self.engine.describe(),
            scope=self.engine.noise.scope,
            norm=self.law.norm,
            correction=self.correction,
            network={"heads": len(self.model.heads), "state": self.engine.fingerprint()},
            data=DataFacts(name=info.name, fingerprint=dataset.fingerprint),
            indices=tuple(dataset.indices.tolist()),
            shape=tuple(info.shape),
            grid=info.grid.max_value,
            classes=info.classes,
            class_names=tuple(info.class_names),
            aggregations=tuple(self.engine.aggregations),
            versions=versions(),
        )


def _settings(config: CertifyConfig | None, settings: dict[str, Any]) -> CertifyConfig:
    if config is not None:
        return config.changed(**settings)
    if "sigma" not in settings:
        raise ConfigError("sigma, the deviation of the noise", "none", "give the sigma of the training")
    return CertifyConfig.of(**settings)


def _facts(
    info: DataInfo | Dataset | None,
    shape: Sequence[int] | None,
    classes: int | Sequence[str] | None,
    max_value: int,
) -> DataInfo:
    if isinstance(info, DataInfo):
        return info
    if info is not None:
        return as_dataset(info).info
    if shape is None or classes is None or len(shape) != 3:
        got = f"shape {shape}, classes {classes}"
        raise ConfigError(
            "what images the network takes",
            got,
            "give a data set as second argument, or for example shape=(3, 32, 32), classes=10",
        )
    names = tuple(map(str, range(classes))) if isinstance(classes, int) else tuple(classes)
    channels, height, width = shape
    size = (int(channels), int(height), int(width))
    return DataInfo("images", Grid(max_value), size, names, (0.0,) * size[0], (1.0,) * size[0])
