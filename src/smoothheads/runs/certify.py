"""A certification run in a folder: checkpoint and data in, ledger out. Run it again and it goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from smoothheads.certify.engines import Work, as_stored, undecided, work_of
from smoothheads.certify.smoothed import Certified, Smoothed
from smoothheads.certify.together import OnVotes
from smoothheads.checkpoint import Checkpoint
from smoothheads.config import CertifyConfig, DataConfig, SubsetConfig, load_json, to_dict
from smoothheads.config.check import at_least
from smoothheads.data import Dataset, load, load_test, select
from smoothheads.errors import ConfigError, DataError
from smoothheads.provenance import versions
from smoothheads.results import manifest as manifests
from smoothheads.results.ledger import MANIFEST, Ledger
from smoothheads.results.manifest import Manifest, describe_indices
from smoothheads.results.row import Row
from smoothheads.runs.layout import ENGINES
from smoothheads.runs.workers import Job, OnWork, certify_images, worth

OnRow = Callable[[Row, int, int], None]
"""Called with the row, how many images are done and how many there are."""

FORMAT = "smoothheads-ledger/1"


def certification_images(ready: Checkpoint, data: DataConfig, subset: SubsetConfig) -> Dataset:
    """The chosen test images, which must be what the network was trained on."""
    dataset = select(load_test(data), subset)
    want, got = ready.info, dataset.info
    for what, a, b in (
        ("shape", want.shape, got.shape),
        ("grid", want.grid.q, got.grid.q),
        ("classes", want.classes, got.classes),
    ):
        if a != b:
            raise DataError(f"images of {what} {a}, as in training", f"{b}", "point at the matching data set")
    return dataset


def certify_run(
    ready: Checkpoint,
    dataset: Dataset,
    config: CertifyConfig,
    out: Path,
    *,
    workers: int | None = 1,
    artefacts: Path | None = None,
    training: Callable[[], Dataset] | None = None,
    shard: tuple[int, int] | None = None,
    fresh: bool = False,
    on_note: Callable[[str], None] | None = None,
    on_start: Callable[[int], None] | None = None,
    on_row: OnRow | None = None,
    on_votes: OnVotes | None = None,
) -> Path:
    """Certifies what the ledger in `out` does not hold yet; every finished image is safe on the disk.

    `shard` (i, n) takes every n-th image from the i-th on, i from 0; `results.merge` joins the ledgers.
    `workers` processes share the images out (none: a trial decides whether one per core are worth it); the
    ledger is the same, and `on_votes` is then not called.
    Converted networks are kept in `artefacts` (default: in `out`). `training` gives the images that int8 is
    calibrated with (default: those of the checkpoint's config). `on_note` is told what `auto` stands for (it
    stays so for the whole ledger) and what a lazy consensus has saved.
    """
    if not len(dataset):
        raise ConfigError("at least one image to certify", "an empty selection", "widen the subset")
    if workers is not None:
        at_least("workers", workers, 1)
    artefacts = out / ENGINES if artefacts is None else artefacts
    smoothed = Smoothed(
        ready.model,
        ready.info,
        config if fresh else as_before(config, out),
        artefacts=artefacts,
        training=training or (lambda: load(ready.config.data).train),
        images=len(dataset),
    )
    note = on_note or (lambda _: None)
    for reason in smoothed.notes:
        note(reason)
    manifest = make_manifest(ready, dataset, smoothed)
    if shard is not None:
        manifest = manifests.shard(manifest, *shard)
    others = set(dataset.indices.tolist()) - set(manifests.expected_indices(manifest) or ())
    done: list[Work] = []
    with Ledger.open(out, manifest, fresh=fresh) as ledger:
        if on_start:
            on_start(len(ledger.rows))
        job = Job(ready.model, ready.info, smoothed.config, dataset, artefacts)
        skip = ledger.done | others
        count = _worth(smoothed, len(dataset) - len(skip), note) if workers is None else workers
        before = work_of(smoothed.engine)  # in trials
        for found in _certified(smoothed, job, skip, count, on_votes=on_votes, on_work=done.append):
            row = Row.of(found)
            ledger.append(row)
            if on_row:
                on_row(row, len(ledger.rows), len(dataset) - len(others))
    work = sum(done, start=work_of(smoothed.engine) - before)
    if work.copies:
        note(str(work))
    return out


def as_before(config: CertifyConfig, out: Path) -> CertifyConfig:
    """`config` with the choices that were made for the ledger in `out`, if there is one."""
    path = out / MANIFEST
    if not undecided(config) or not path.is_file():
        return config
    return as_stored(config, load_json(path).get("certify", {}))


def _worth(smoothed: Smoothed, images: int, note: Callable[[str], None]) -> int:
    """How many workers pay here; the ledger does not depend on it."""
    config = smoothed.config
    if config.device != "cpu":
        return 1
    # docs/budgets.md: a sequential budget spends a tenth of n or so.
    copies = config.n0 + (config.n if config.budget == "fixed" else config.n // 10)
    seconds = images * copies * smoothed.seconds_per_copy()
    count = worth(seconds, images, config.threads)
    if count > 1:
        note(f"{count} workers: one alone would take about {seconds / 60:.0f} min")
    return count


def _certified(
    smoothed: Smoothed,
    job: Job,
    skip: set[int],
    workers: int,
    *,
    on_votes: OnVotes | None,
    on_work: OnWork,
) -> Iterator[Certified]:
    if workers == 1:
        return smoothed.certify(job.dataset, skip=skip, on_votes=on_votes)
    left = [i for i, index in enumerate(job.dataset.indices.tolist()) if index not in skip]
    return certify_images(job, left, workers, on_work)


def make_manifest(ready: Checkpoint, dataset: Dataset, smoothed: Smoothed) -> Manifest:
    """Everything needed to repeat this run or to refuse mixing it with another."""
    return {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "certify": to_dict(smoothed.config),
        "engine": smoothed.engine.describe(),
        "scope": smoothed.engine.noise.scope,
        "norm": smoothed.theorem.norm,
        "correction": smoothed.correction,
        "weights": ready.weights_hash,
        "train_sigma": ready.config.train.sigma,
        "data": {"name": dataset.info.name, "fingerprint": dataset.fingerprint},
        "indices": describe_indices(dataset.indices.tolist()),
        "shape": list(dataset.info.shape),
        "grid": dataset.info.grid.q,
        "classes": dataset.info.classes,
        "class_names": list(dataset.info.class_names),
        "rules": list(smoothed.engine.rules),
        "versions": versions(),
    }
