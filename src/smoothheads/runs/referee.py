"""Evaluates a random sample of a ledger again, in a fresh process, with the network that it names.

The fresh process draws the noise itself, from the seed and the law of the manifest, and adds it to the image
before the network. Votes that come out equal therefore belong to this network, this noise and this place.
"""

from __future__ import annotations

import math
import multiprocessing
import secrets
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import numpy as np

from smoothheads.certify.engines import ConversionCache
from smoothheads.certify.soundness import NotAFunctionError
from smoothheads.config import from_dict
from smoothheads.config.check import at_least
from smoothheads.errors import LedgerError
from smoothheads.files import write_json
from smoothheads.results.audit import Finding
from smoothheads.results.manifest import Manifest
from smoothheads.results.read import ledger_folder, read_log
from smoothheads.runs.attack import subject
from smoothheads.runs.certify import RECHECK, VOID, ledger_images, recheck_facts, void_ledger
from smoothheads.runs.models import ENGINES, ModelSource, open_model
from smoothheads.smoothed import Smoothed
from smoothheads.types import Certified, Phase, Votes

VotePair: TypeAlias = tuple[Votes, Votes]
SURE = 0.95
_ROUNDING = 0.002  # fraction of an image's votes that other processors or versions may move


@dataclass(frozen=True, slots=True)
class Rerun:
    """The outcome of evaluating some images again."""

    images: tuple[int, ...]
    """Indices of the images, drawn at random after the ledger was finished."""
    total: int
    """The number of rows in the ledger."""
    moved: tuple[int, ...]
    """For each image the number of votes, selection included, that came out differently."""
    samples: tuple[int, ...]
    """For each image the number of votes."""
    network: str
    law: str

    @property
    def different(self) -> tuple[int, ...]:
        """Images whose votes differ by more than rounding explains."""
        pairs = zip(self.images, self.moved, self.samples, strict=True)
        return tuple(index for index, moved, n in pairs if moved > _ROUNDING * n)

    @property
    def undetected(self) -> float:
        """The fraction of rows that could be of another network at most, with confidence 95 %.

        If a fraction q of the rows were, K random ones would miss all of them with probability (1 - q)^K.
        """
        return float(1 - (1 - SURE) ** (1 / len(self.images)))

    def findings(self) -> list[Finding]:
        """Returns the findings for the audit of the ledger."""
        count = len(self.images)
        if self.different:
            message = (
                f"{len(self.different)} of {count} images, evaluated again with {self.network}, get other "
                "votes: the ledger does not belong to this network, noise, engine or data"
            )
            return [Finding("error", "rerun", message, self.different)]
        exact = sum(moved == 0 for moved in self.moved)
        rounding = "" if exact == count else f" ({exact} exactly, the others but for rounding)"
        message = (
            f"{count} random images, evaluated again in a fresh process with {self.network}, get the same "
            f"votes{rounding}, under {self.law} that was drawn here and added before the network; with "
            f"95 % confidence fewer than {self.undetected:.1%} of the {self.total:,} rows are of another one"
        )
        return [Finding("note", "rerun", message)]


def rerun(
    ledger: Path | str,
    count: int = 20,
    *,
    checkpoint: Path | str | None = None,
    root: str | None = None,
    on_start: Callable[[int], None] | None = None,
) -> Rerun:
    """Evaluates all votes of `count` random images of a ledger again, in a fresh process.

    Args:
        ledger: The ledger, a run's folder or an export.
        count: The number K of images.
        checkpoint: The network or export; by default the one that the ledger lies in.
        root: The folder of the data set, if not where it lay in training.
        on_start: Gets the number of samples before the first one.
    """
    # 1. The ledger, and the network that it is about.
    at_least("rerun", count, 1)
    folder = ledger_folder(ledger)
    log = read_log(folder)
    manifest = log.manifest
    if manifest is None:
        raise LedgerError(f"{folder} is a log without votes and seed, so nothing can be evaluated again.")
    network = _network(folder, manifest) if checkpoint is None else Path(checkpoint)

    # 2. Random images: nobody could know, when the ledger was made, which ones are looked at.
    chosen = np.sort(secrets.SystemRandom().sample(range(len(log)), min(count, len(log))))
    rows = [log.rows[i] for i in chosen]
    if on_start:
        on_start(sum(row.samples for row in rows))
    # 3. A process that shares no state with whoever certified counts their votes again.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=spawn) as process:
        again = process.submit(_evaluate, network, folder, manifest, rows, root).result()
    # 4. Votes that came out differently.
    moved = tuple(_moved(row, other) for row, other in zip(rows, again, strict=True))
    sigma = manifest.certify.sigma
    return Rerun(
        images=tuple(row.index for row in rows),
        total=len(log),
        moved=moved,
        samples=tuple(row.samples for row in rows),
        network=network.place if isinstance(network, ModelSource) else str(network),
        law=f"{manifest.certify.noise} noise of standard deviation {sigma:g}",
    )


def recheck_votes(
    checkpoint: Path | str | None, ledger: Path | str, count: int | None = None, *, root: str | None = None
) -> Rerun:
    """Evaluates a random sample of a ledger again in a fresh process, which must reproduce its votes.

    Whatever a network keeps outside of its weights (a counter, a hook, a global, a file of its own) is as it
    was at the start there. Raises NotAFunctionError if the votes differ, and the ledger is void.

    Args:
        checkpoint: The network or export that was certified; None takes what the ledger names.
        ledger: The folder of the ledger.
        count: Images to evaluate (default: the fraction `recheck` of the settings, and at least one).
        root: The folder of the data set, if not where it lay in training.
    """
    folder = ledger_folder(Path(ledger))
    log = read_log(folder)
    if count is None:
        fraction = log.manifest.certify.recheck if log.manifest else 0.0
        count = max(1, math.ceil(fraction * len(log)))
    result = rerun(folder, count, checkpoint=checkpoint, root=root)
    # Rounding may move single votes; more than that is another function, and its certificates are void.
    if result.different:
        void_ledger(folder)
        raise NotAFunctionError(
            f"Image {result.different[0]} and {len(result.different) - 1} others of {len(result.images)} get "
            "other votes in a fresh process: the network keeps state outside of its weights, so every "
            f"certificate is void; the rows are in {folder / VOID}."
        )
    fresh = {"images": list(result.images), "samples": sum(result.samples), "changed": sum(result.moved)}
    write_json(folder / RECHECK, recheck_facts(folder) | {"fresh_process": fresh})
    return result


def _network(folder: Path, manifest: Manifest) -> Path | ModelSource:
    """Returns the classifier that the manifest names, else the export or the run that the ledger lies in."""
    if (source := manifest.network.get("source")) is not None:
        return from_dict(ModelSource, source, "network.source")
    if (folder.parent / "SHA256SUMS").is_file():
        return folder.parent
    return subject(folder).network


def _evaluate(
    network: Path | ModelSource, ledger: Path, manifest: Manifest, rows: list[Certified], root: str | None
) -> list[VotePair]:
    """Returns the votes on the images of these rows for selection and estimation, in the fresh process."""
    # Weights and images must be those of the manifest, which also has seed, noise, engine and budget.
    if isinstance(network, ModelSource):
        own = network.open(manifest.certify.sigma)
        dataset = ledger_images(own, manifest, root)
        cache = ConversionCache(ledger / ENGINES)
        certifier = Smoothed(own.model, dataset.info, manifest.certify, cache=cache).certifier
    else:
        model = open_model(network)
        dataset = ledger_images(model.checkpoint, manifest, root)
        certifier = model.certifier(manifest.certify)
    chosen = {row.index: row for row in rows}
    if manifest.certify.seconds is None:
        others = set(dataset.indices.tolist()) - chosen.keys()
        return [(each.selection, each.votes) for each in certifier.records(dataset, skip=others)]
    # Where the clock ended the sampling of an image, the ledger tells how many samples it got.
    votes = certifier.counter.votes
    return [
        (
            votes(dataset.image(position), index, Phase.SELECTION, 0, chosen[index].selection.n),
            votes(dataset.image(position), index, Phase.ESTIMATION, 0, chosen[index].votes.n),
        )
        for position, index in enumerate(dataset.indices.tolist())
        if index in chosen
    ]


def _moved(row: Certified, again: VotePair) -> int:
    """Returns the number of votes of the certified and all other aggregations that changed their class."""
    # A vote that moves from one class to another changes two counts by one.
    pairs = zip((row.selection, row.votes), again, strict=True)
    return sum(int(np.abs(a.counts - b.counts).sum(1).max()) + 1 >> 1 for a, b in pairs)
