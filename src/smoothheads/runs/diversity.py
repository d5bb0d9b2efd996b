"""Compares a checkpoint's heads under noise on test images. Noise is keyed, logits are streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines.base import Floats
from smoothheads.certify.votes import VoteCounter
from smoothheads.checkpoint import Checkpoint
from smoothheads.data import Dataset, SubsetConfig, select
from smoothheads.errors import DataError
from smoothheads.results.diversity import Margins, Spread
from smoothheads.runs.certify import certification_images
from smoothheads.runs.models import CHECKPOINT, open_checkpoint
from smoothheads.runs.sampling import Sampling
from smoothheads.types import Phase

OnSamples = Callable[[int], None]


class MeasuredHeads(NamedTuple):
    facts: dict[str, Any]
    """Plain values, as JSON has them."""
    margins: Margins


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
    """Compares the heads of each checkpoint on test images, all under the same noise.

    Args:
        folders: checkpoints or run folders.
        sampling: noise, and how many samples.
        subset: test images on which the heads are compared.
        index: the test image whose log-probability margins are measured.
        root: where the data lies, if not where it lay in training.
        on_start: receives how many noise samples there will be.
        on_samples: receives how many noise samples were just evaluated.
    """
    # All checkpoints are opened first: a mistake in the last one shows before hours of work.
    work = []
    for folder in map(Path, folders):
        checkpoint = open_checkpoint(folder)
        test = certification_images(checkpoint, SubsetConfig(), root=root)
        work.append((folder, checkpoint, select(test, subset), select(test, SubsetConfig(indices=(index,)))))
    if on_start:
        on_start(sum(len(chosen) * sampling.samples + sampling.index_samples for _, _, chosen, _ in work))
    # Noise is keyed by the index of the image, so that all checkpoints see the same samples.
    measured = []
    for folder, checkpoint, chosen, one in work:
        spread = measure(checkpoint, chosen, sampling, on_samples)
        of_one = margins(checkpoint, one, 0, sampling, on_samples)
        label = checkpoint.info.class_names[int(one.labels[0])]
        facts = {
            "checkpoint": str(folder),
            "name": folder.parent.name if folder.name == CHECKPOINT else folder.name,
            "sigma": sampling.sigma,
            "heads": len(checkpoint.model.heads),
            "images": spread.to_dict(),
            "image": {"index": index, "label": label} | of_one.to_dict(),
        }
        measured.append(MeasuredHeads(facts, of_one))
    return measured


def measure(
    checkpoint: Checkpoint, dataset: Dataset, sampling: Sampling, on_samples: OnSamples | None = None
) -> Spread:
    """Returns the comparison of the heads under noise samples of every image.

    Args:
        checkpoint: The network with L heads.
        dataset: The images.
        sampling: The noise, and the number of samples of each image.
        on_samples: Receives how many noise samples were just evaluated.
    """
    if not len(dataset):
        raise DataError("The subset has no images: widen it.")
    counter, spread = _counter(checkpoint, sampling), Spread(len(checkpoint.model.heads))
    for position, label in enumerate(dataset.labels.tolist()):
        blocks = _noisy_logits(counter, dataset, position, sampling.samples, on_samples)
        spread.add_image(np.concatenate(list(blocks), axis=1), label)
    return spread


def margins(
    checkpoint: Checkpoint,
    dataset: Dataset,
    position: int,
    sampling: Sampling,
    on_samples: OnSamples | None = None,
) -> Margins:
    """Returns log-probability margins of one image (SOME, Figure 2).

    Args:
        checkpoint: The network with L heads.
        dataset: The images.
        position: The place of the image among them.
        sampling: The noise, and the number `index_samples` of samples.
        on_samples: Receives how many noise samples were just evaluated.
    """
    counter, measured = _counter(checkpoint, sampling), Margins(len(checkpoint.model.heads))
    for logits_LMC in _noisy_logits(counter, dataset, position, sampling.index_samples, on_samples):
        measured.add(logits_LMC, int(dataset.labels[position]))
    return measured


def _counter(checkpoint: Checkpoint, sampling: Sampling) -> VoteCounter:
    config = CertifyConfig(
        sigma=sampling.sigma,
        noise=sampling.noise,
        seed=sampling.seed,
        block=sampling.block,
        device=sampling.device,
        threads=sampling.threads,
    )
    return Certifier(checkpoint.model, checkpoint.info, config).counter


def _noisy_logits(
    counter: VoteCounter, dataset: Dataset, position: int, count: int, on_samples: OnSamples | None
) -> Iterator[Floats]:
    """Yields logits [L, M, C], `count` samples in all, as certification computes them.

    The noise is the pilot's, on which no certificate rests. Raises SoundnessError when a logit is not finite.
    """
    image, index = dataset.image(position), int(dataset.indices[position])
    for logits_LMC in counter.logits(image, index, Phase.PILOT, 0, count):
        yield logits_LMC
        if on_samples:
            on_samples(logits_LMC.shape[1])
