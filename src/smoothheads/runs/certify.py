"""A certification run in a folder: checkpoint and data in, ledger out. Run it again and it goes on."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.drive import OnVotes
from smoothheads.certify.engines import EngineConfig, Store, Work, work_of
from smoothheads.checkpoint import Checkpoint
from smoothheads.config.check import at_least
from smoothheads.data import DataConfig, Dataset, SubsetConfig, load, load_test, select
from smoothheads.errors import ConfigError, DataError, duration
from smoothheads.results.ledger import Ledger, reserve_ledger
from smoothheads.results.manifest import FILE, Manifest, Shard, read_manifest
from smoothheads.runs.cluster import Cluster
from smoothheads.runs.layout import ENGINES
from smoothheads.runs.on_ray import Crew, OnStatus
from smoothheads.runs.workers import Job, certify_images, worth
from smoothheads.smoothed import Smoothed
from smoothheads.types import Certified

OnRow = Callable[[Certified, int, int], None]
"""Called with the record, how many images are done and how many there are."""


def certification_images(
    checkpoint: Checkpoint,
    data: DataConfig,
    subset: SubsetConfig,
    on_note: Callable[[str], None] | None = None,
) -> Dataset:
    """The chosen test images, which must be of the kind that the network was trained on; `on_note` is told
    when they are not those of the data set that it was trained with."""
    whole = load_test(data)
    dataset = select(whole, subset)
    want, got = checkpoint.info, dataset.info
    for what, a, b in (
        ("shape", want.shape, got.shape),
        ("grid", want.grid.max_value, got.grid.max_value),
        ("classes", want.classes, got.classes),
    ):
        if a != b:
            raise DataError(f"images of {what} {a}, as in training", f"{b}", "point at the matching data set")
    _require_classes(want.class_names, got.class_names)
    trained = checkpoint.manifest.get("test_data")
    if on_note and isinstance(trained, dict) and trained.get("fingerprint") != whole.fingerprint:
        on_note(
            f"note: these are not the test images of the training ({trained.get('name')}): here {got.name}, "
            f"{len(whole)} images with fingerprint {whole.fingerprint[:12]}..."
        )
    return dataset


def _require_classes(trained: tuple[str, ...], here: tuple[str, ...]) -> None:
    """Class k must mean the same; where one side only numbers its classes, nothing can be said."""
    numbers = tuple(map(str, range(len(trained))))
    if trained != here and numbers not in (trained, here):
        first = next(k for k, pair in enumerate(zip(trained, here, strict=True)) if pair[0] != pair[1])
        raise DataError(
            f"the classes of the training (class {first}: {trained[first]!r})",
            f"{here[first]!r}",
            "point at the data set that the network was trained on",
        )


def certify_run(
    checkpoint: Checkpoint,
    dataset: Dataset,
    config: CertifyConfig,
    out: Path | str,
    *,
    workers: int | None = 1,
    cluster: Cluster | None = None,
    artefacts: Path | str | None = None,
    training: Callable[[], Dataset] | None = None,
    shard: tuple[int, int] | None = None,
    fresh: bool = False,
    on_note: Callable[[str], None] | None = None,
    on_convert: Callable[[int, int], None] | None = None,
    on_start: Callable[[int], None] | None = None,
    on_row: OnRow | None = None,
    on_votes: OnVotes | None = None,
    on_status: OnStatus | None = None,
) -> Path:
    """Certifies what the ledger in `out` does not hold yet; every finished image is safe on the disk.

    `shard` (i, n) takes every n-th image from the i-th on, i from 0; `results.merge` joins the ledgers.
    `workers` processes share the images out (none: a trial decides whether one per core are worth it); the
    ledger is the same, and `on_votes` is then not called. On a `cluster` they are Ray's (none: as many as
    fit), and `on_status` is told from time to time what they do.
    Converted networks are kept in `artefacts` (default: in `out`). `training` gives the images that int8 is
    calibrated with (default: those of the checkpoint's config), and `on_convert` is told how many are read.
    `on_note` is told what `auto` stands for (it stays so for the whole ledger) and what a lazy consensus has
    saved.
    """
    if not len(dataset):
        raise ConfigError("at least one image to certify", "an empty selection", "widen the subset")
    if workers is not None:
        at_least("workers", workers, 1)
    out = Path(out)
    reserve_ledger(out, ignore=(ENGINES,))
    artefacts = Path(artefacts or out / ENGINES)
    note, read = on_note or (lambda _: None), training or (lambda: load(checkpoint.config.data).train)
    done: list[Work] = []
    with nullcontext() if cluster is None else cluster.connected() as ray:
        smoothed = Smoothed(
            checkpoint.model,
            checkpoint.info,
            config if fresh else as_before(config, out),
            store=Store(artefacts, read, on_progress=on_convert),
            images=len(dataset),
        )
        for reason in smoothed.notes:
            note(reason)
        manifest = make_manifest(checkpoint, dataset, smoothed)
        if shard is not None:
            manifest = replace(manifest, shard=Shard(number=shard[0], of=shard[1]))
        others = set(dataset.indices.tolist()) - set(manifest.expected or ())
        with Ledger.open(out, manifest, fresh=fresh, ignore=(ENGINES,)) as ledger:
            if on_start:
                on_start(len(ledger))
            skip = ledger.done | others
            left = [i for i, index in enumerate(dataset.indices.tolist()) if index not in skip]
            if workers is None and cluster is None:
                workers = _worth(smoothed, len(left), note)
            before = work_of(smoothed.engine)  # in trials
            records = partial(smoothed.records, dataset, skip=skip, on_votes=on_votes)
            if ray is not None:
                crew = Crew(ray, smoothed, dataset.image(0), len(left), workers, note, on_status, done.append)
                rows = records(drive=crew.drive)
            elif workers == 1:
                rows = records()
            else:
                job = Job(checkpoint.model, checkpoint.info, smoothed.config, dataset, artefacts)
                rows = certify_images(job, left, workers or 1, done.append)
            for certified in rows:
                ledger.append(certified)
                if on_row:
                    on_row(certified, len(ledger), len(dataset) - len(others))
    work = sum(done, start=work_of(smoothed.engine) - before)
    if work.samples:
        note(str(work))
    return out


def as_before(config: CertifyConfig, out: Path) -> CertifyConfig:
    """`config` with the seed that was drawn and the engine that was chosen for the ledger in `out`, if there
    is one and `config` leaves them open."""
    if not (config.engine.undecided or config.seed is None) or not (out / FILE).is_file():
        return config
    stored = read_manifest(out).certify
    engine = (
        stored.engine
        if config.engine.undecided and _stands_for(config.engine, stored.engine)
        else config.engine
    )
    return replace(config, engine=engine, seed=stored.seed if config.seed is None else config.seed)


def _stands_for(wanted: EngineConfig, stored: EngineConfig) -> bool:
    """Whether a trial for `wanted` may have chosen `stored`: what does not say `auto` is the same."""
    given, before = wanted.settings(), stored.settings()
    return wanted.name in ("auto", stored.name) and all(
        value in ("auto", before[name]) for name, value in given.items() if name in before
    )


def _worth(smoothed: Smoothed, images: int, note: Callable[[str], None]) -> int:
    """How many workers pay here; the ledger does not depend on it."""
    config = smoothed.config
    if config.device != "cpu":
        return 1
    seconds = images * smoothed.budget.typical_samples * smoothed.seconds_per_sample()
    count = worth(seconds, images, config.engine.threads)
    if count > 1:
        note(f"{count} workers: one alone would take about {duration(seconds)}")
    return count


def make_manifest(checkpoint: Checkpoint, dataset: Dataset, smoothed: Smoothed) -> Manifest:
    return replace(
        smoothed.manifest(dataset),
        weights=checkpoint.weights_hash,
        train_sigma=checkpoint.config.train.sigma,
        network=network_facts(checkpoint),
    )


def network_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """What a reader of the ledger wants to know of the network; what is not known is left out."""
    config, metrics = checkpoint.config, checkpoint.manifest.get("metrics") or {}
    facts = {
        "arch": config.model.arch,
        "heads": len(checkpoint.model.heads),
        "method": config.objective.method.name,
        "seed": config.train.seed,
        "epochs": metrics.get("epoch"),
        "seconds": checkpoint.manifest.get("seconds"),
    }
    return {name: value for name, value in facts.items() if value is not None}
