"""The smoothed classifier as a Python user wants it: any network, any form of images, results at the end.

smoothed = Smoothed(net, test, sigma=0.25, n=10_000)
results = smoothed.certify(test)
predictions = smoothed(images)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from smoothheads.certify.algorithm import Prediction
from smoothheads.certify.budgets import AnytimeBudget
from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import ConversionCache
from smoothheads.data import DataInfo, Dataset, as_dataset, as_pixels
from smoothheads.errors import ConfigError
from smoothheads.models.adapters import BlackBox, adapt
from smoothheads.provenance import versions
from smoothheads.results.manifest import DataFacts, Manifest
from smoothheads.results.results import Results
from smoothheads.types import Certificate, Certified, Grid

OnRecord: TypeAlias = Callable[[Certified], None]


def certify(
    model: Any,
    data: Any,
    labels: Any = None,
    *,
    sigma: float,
    classes: int | Sequence[str] | None = None,
    progress: bool = True,
    on_record: OnRecord | None = None,
    **settings: Any,
) -> Results:
    """Certifies every image of `data` in one call.

    Every image takes 100 + 100,000 passes of one noisy copy through the network, as in published tables,
    unless `n` says otherwise: minutes per image for a ResNet-110 on a processor. n=1000 takes a hundredth of
    the time, and its radii end at 2.5 sigma instead of 3.8 sigma.

    Args:
        model: Any classifier that `Smoothed` takes.
        data: A data set, or images with `labels`.
        labels: The labels, if `data` is images alone.
        sigma: Standard deviation of the noise; that of the training is usual.
        classes: Number of classes or their names, if the data do not tell.
        progress: Show a bar on standard error, if that is a terminal or a notebook.
        on_record: Is called with every finished image.
        settings: Other settings of a certification, such as n=10_000 or budget="radius".
    """
    facts: dict[str, Any] = {} if classes is None else {"classes": classes}
    dataset = as_dataset(data, labels, **facts)
    smoothed = Smoothed(model, dataset, sigma=sigma, **settings)
    return smoothed.certify(dataset, progress=progress, on_record=on_record)


class Smoothed:
    """`G(x)`, the class that the base classifier gives most often under noise of standard deviation `sigma`.

    Images may be arrays or tensors, of grid integers or of floats in [0, 1] that lie on the grid, channels
    first or last, one or a batch.

    Args:
        model: Any classifier of pixels in [0, 1]: a module that gives logits [N, classes] (or a MultiHead),
            one of Hugging Face or timm or its `hf://user/name`, the path of an ONNX file, an estimator of
            scikit-learn, or a function of NumPy images [N, C, H, W] that returns logits or classes.
            `sh.adapt` has settings for them.
        info: The images that it takes: a DataInfo or a data set. `shape` and `classes` may be given instead.
        config: Settings; they may also be given by name: `sigma`, `n` (100,000 samples per image by default),
            `budget="table"`, `engine="openvino"`, ...
        shape: Channels, height and width of an image.
        classes: Number of classes, or their names.
        max_value: The largest pixel value of the integer grid.
        cache: Where an engine keeps networks that it converts.
    """

    def __init__(
        self,
        model: Any,
        info: DataInfo | Dataset | None = None,
        config: CertifyConfig | None = None,
        *,
        shape: Sequence[int] | None = None,
        classes: int | Sequence[str] | None = None,
        max_value: int = 255,
        cache: ConversionCache | None = None,
        **settings: Any,
    ) -> None:
        self.model = adapt(model)
        if config is None:
            if "sigma" not in settings:
                raise ConfigError(
                    "Give sigma, the standard deviation of the noise: that of the training is usual."
                )
            config = CertifyConfig(sigma=settings.pop("sigma"))
        facts = _facts(info, shape, classes, max_value)
        config = config.changed(**settings)
        self.certifier = Certifier(self.model, facts, config, cache=cache)
        self.info, self.engine = facts, self.certifier.engine
        self.config = self.certifier.config
        """All settings, with the drawn seed."""
        removed, added = self._parts().get("denoiser", {}).get("sigma"), self.config.sigma
        if removed not in (None, added):
            self.certifier.notes += (
                f"the denoiser removes noise of sigma {removed:g}, and certification adds sigma {added:g}: "
                "give sh.denoised the sigma of the certification",
            )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user, for example that n certifies small radii only."""
        return self.certifier.notes

    def __call__(self, images: Any) -> NDArray[np.int64]:
        """PREDICT a batch: classes [N], or ABSTAIN (-1) where the samples do not decide."""
        pixels = as_pixels(images, self.info)
        batch = pixels[None] if pixels.ndim == 3 else pixels
        return np.array([self.predict(each).prediction for each in batch], dtype=np.int64)

    def predict(self, image: Any, index: int | None = None) -> Prediction:
        """PREDICT one image with n samples: a class, or an abstention."""
        return self.certifier.predict(image, index)

    def certify_image(self, image: Any, index: int | None = None, *, label: int | None = None) -> Certified:
        """CERTIFY one image; without an index its noise is keyed by its content."""
        return self.certifier.certify_image(image, index, label=label)

    def stream(
        self,
        image: Any,
        index: int | None = None,
        *,
        n: int | None = None,
        target: float | None = None,
        seconds: float | None = None,
    ) -> Iterator[Certificate]:
        """Yields the growing certificates of budget anytime, block by block.

        Every one of them holds, so the reader may stop at any. Without the last three it never ends.

        Args:
            image: The image.
            index: The key of its noise; without one it is keyed by its content.
            n: Samples at most.
            target: Radius at which to stop.
            seconds: Time after which to stop.
        """
        budget = AnytimeBudget(n0=self.certifier.n0, n=n or 0, target=target, seconds=seconds)
        for pending in self.certifier.steps(budget.run, image, index):
            certificate = pending.result if pending.request is None else pending.partial
            if certificate is not None:
                yield certificate

    def __repr__(self) -> str:
        config, info = self.config, self.info
        size = "x".join(map(str, info.shape))
        return (
            f"Smoothed({self.engine.heads} head(s), {info.classes} classes, images {size}, "
            f"sigma {config.sigma:g}, budget {config.budget} with n = {self.certifier.n:,}, "
            f"alpha {config.alpha:g}, engine {config.engine} in {config.precision})"
        )

    def certify(
        self,
        data: Any,
        labels: Any = None,
        *,
        progress: bool = True,
        on_record: OnRecord | None = None,
    ) -> Results:
        """Certifies every image of a data set, or of images and their labels.

        Args:
            data: A data set, or images.
            labels: The labels of images.
            progress: Show a bar on standard error, if that is a terminal or a notebook.
            on_record: Called with the record of every image.
        """
        dataset = as_dataset(data, labels, classes=self.info.class_names, max_value=self.info.grid.max_value)
        records = []
        console = Console(stderr=True)
        with Progress(console=console, disable=not (progress and console.is_interactive)) as bar:
            task = bar.add_task("certify", total=len(dataset))
            for record in self.certifier.records(dataset):
                records.append(record)
                bar.advance(task)
                if on_record:
                    on_record(record)
        return Results.of(dataset.info.name, records, self.manifest(dataset))

    def _parts(self) -> dict[str, Any]:
        """Returns the hashes of a denoiser and of the classifier behind it, and notes about the network.

        A black box describes itself as an engine.
        """
        if isinstance(self.model, BlackBox):
            return {}
        from smoothheads.models.denoiser import describe_parts

        return describe_parts(self.model) | ({"notes": list(self.model.notes)} if self.model.notes else {})

    def manifest(self, dataset: Dataset) -> Manifest:
        """Returns everything needed to repeat a certification of `dataset`."""
        info, certifier = dataset.info, self.certifier
        return Manifest(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            certify=self.config,
            engine=self.engine.describe(),
            scope=certifier.noise.scope,
            norm=certifier.law.norm,
            correction=certifier.correction,
            network={"heads": self.engine.heads, "state": self.engine.fingerprint()} | self._parts(),
            data=DataFacts(name=info.name, fingerprint=dataset.fingerprint),
            indices=tuple(dataset.indices.tolist()),
            shape=tuple(info.shape),
            grid=info.grid.max_value,
            classes=info.classes,
            class_names=tuple(info.class_names),
            aggregations=tuple(certifier.counter.aggregations),
            versions=versions(),
        )


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
        raise ConfigError(
            "Say what images the network takes: give a data set as second argument, or for example "
            "shape=(3, 32, 32) and classes=10."
        )
    names = tuple(map(str, range(classes))) if isinstance(classes, int) else tuple(classes)
    channels, height, width = shape
    size = (int(channels), int(height), int(width))
    return DataInfo("images", Grid(max_value), size, names, (0.0,) * size[0], (1.0,) * size[0])
