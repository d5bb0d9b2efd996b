"""How different a checkpoint's heads are under noise, on test images. Noise is keyed, logits are streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from smoothheads import device as devices
from smoothheads.certify.engines import Network, Request, Store, Torch
from smoothheads.certify.engines.torch import TorchEngine
from smoothheads.checkpoint import Checkpoint
from smoothheads.data import Dataset, SubsetConfig, select
from smoothheads.errors import DataError
from smoothheads.noise import make_noise
from smoothheads.results.diversity import Gaps, Spread
from smoothheads.runs.certify import certification_images
from smoothheads.runs.layout import CHECKPOINT, open_checkpoint
from smoothheads.runs.sampling import Sampling
from smoothheads.types import ENSEMBLE, Phase, Pixels

OnSamples = Callable[[int], None]


class NoisyLogits:
    """Logits of all heads on keyed noise samples, as certification computes them; the noise is the pilot's,
    which no certificate rests on."""

    def __init__(
        self, checkpoint: Checkpoint, sampling: Sampling, on_samples: OnSamples | None = None
    ) -> None:
        noise = make_noise(
            sampling.noise, sampling.sigma, checkpoint.info.grid, sampling.seed, sampling.block
        )
        network = Network(checkpoint.model, checkpoint.info, noise, ENSEMBLE, Store())
        self.engine = TorchEngine(Torch(device=sampling.device, threads=sampling.threads), network)
        self._on_samples = on_samples

    def blocks(self, image: Pixels, index: int, count: int) -> Iterator[Tensor]:
        """[L, M, C] on the CPU, `count` samples in all. Raises SoundnessError when a logit is not finite."""
        size = self.engine.noise.block_size
        for block, start in enumerate(range(0, count, size)):
            wanted = min(size, count - start)
            request = Request(image, index, Phase.PILOT, block, wanted)
            with self.engine.computing():
                ((logits_LMC, _),) = self.engine.logits([request])
            yield logits_LMC.cpu()
            if self._on_samples:
                self._on_samples(wanted)


class MeasuredHeads(NamedTuple):
    facts: dict[str, Any]
    """Plain values, as JSON has them."""
    gaps: Gaps


def diversity_run(
    folders: Sequence[Path | str],
    sampling: Sampling,
    subset: SubsetConfig,
    index: int,
    *,
    root: str | None = None,
    on_start: Callable[[int], None] | None = None,
    on_samples: OnSamples | None = None,
) -> list[MeasuredHeads]:
    """The heads of each checkpoint compared on the test images of `subset`, and on the one at `index`, under
    the same noise. `on_start` is told how many noise samples there will be."""
    work = []
    for folder in map(Path, folders):
        checkpoint = open_checkpoint(folder)
        data = replace(checkpoint.config.data, root=root or checkpoint.config.data.root)
        test = certification_images(checkpoint, data, SubsetConfig())
        work.append((folder, checkpoint, select(test, subset), select(test, SubsetConfig(indices=(index,)))))
    if on_start:
        on_start(sum(len(chosen) * sampling.samples + sampling.index_samples for _, _, chosen, _ in work))
    measured = []
    for folder, checkpoint, chosen, one in work:
        spread = measure(checkpoint, chosen, sampling, on_samples)
        found = gaps(checkpoint, one, 0, sampling, on_samples)
        label = checkpoint.info.class_names[int(one.labels[0])]
        facts = {
            "checkpoint": str(folder),
            "name": folder.parent.name if folder.name == CHECKPOINT else folder.name,
            "sigma": sampling.sigma,
            "heads": len(checkpoint.model.heads),
            "images": spread.to_dict(),
            "image": {"index": index, "label": label} | found.to_dict(),
        }
        measured.append(MeasuredHeads(facts, found))
    return measured


def measure(
    checkpoint: Checkpoint, dataset: Dataset, sampling: Sampling, on_samples: OnSamples | None = None
) -> Spread:
    """The heads compared under `samples` noise samples of every image of `dataset`."""
    if not len(dataset):
        raise DataError("at least one image", "an empty selection", "widen the subset")
    logits = NoisyLogits(checkpoint, sampling, on_samples)
    spread = Spread(len(checkpoint.model.heads))
    with devices.threads(sampling.threads):
        for position, index in enumerate(dataset.indices.tolist()):
            blocks = logits.blocks(dataset.image(position), index, sampling.samples)
            spread.add_image(blocks, int(dataset.labels[position]))
    return spread


def gaps(
    checkpoint: Checkpoint,
    dataset: Dataset,
    position: int,
    sampling: Sampling,
    on_samples: OnSamples | None = None,
) -> Gaps:
    """Log-probability gaps of one image under `index_samples` noise samples (the SOME paper's Figure 2)."""
    logits = NoisyLogits(checkpoint, sampling, on_samples)
    found = Gaps(len(checkpoint.model.heads))
    label, index = int(dataset.labels[position]), int(dataset.indices[position])
    with devices.threads(sampling.threads):
        for block in logits.blocks(dataset.image(position), index, sampling.index_samples):
            found.add(block, label)
    return found
