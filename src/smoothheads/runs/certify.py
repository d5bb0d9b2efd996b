"""A certification run in a folder: checkpoint and data in, ledger out. Run it again and it goes on."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import ConversionCache
from smoothheads.certify.engines.conversion import FACTS, load_converted
from smoothheads.certify.soundness import NotAFunctionError
from smoothheads.certify.votes import OnVotes, VoteCounter
from smoothheads.checkpoint import Checkpoint
from smoothheads.checkpoint.join import differing
from smoothheads.config import Json, differences, load_json, to_dict
from smoothheads.config.check import at_least
from smoothheads.data import (
    ArrayDataset,
    DataConfig,
    DataInfo,
    Dataset,
    SubsetConfig,
    load,
    load_test,
    select,
)
from smoothheads.device import cores
from smoothheads.errors import ConfigError, DataError, LedgerError, WorkerError
from smoothheads.files import exclusive, new_folder, write_json
from smoothheads.models.adapters import BlackBox
from smoothheads.models.multihead import MultiHead
from smoothheads.results.ledger import TABLE, Ledger, reserve_ledger
from smoothheads.results.manifest import FILE, Manifest, Shard, read_manifest
from smoothheads.results.results import Results
from smoothheads.runs.executors import Executor, ProcessExecutor
from smoothheads.runs.models import ENGINES, OwnModel, check_weights
from smoothheads.runs.on_ray import Cluster, Need, OnStatus, RayPool
from smoothheads.smoothed import Smoothed
from smoothheads.types import ABSTAIN, Certified, Phase, Pixels

OnRow = Callable[[Certified, int, int], None]
"""Called with the record, how many images are done and how many there are."""

RECHECK: Final = "recheck.json"  # samples of a ledger that were evaluated a second time, and changed votes
VOID: Final = "void.tsv"  # the rows of a network that turned out to be no function of one image

MANY_ABSTENTIONS: Final = 0.9  # a fraction of the images that asks for an explanation
WORKER_BYTES: Final = 300 * 2**20  # of memory that a worker takes at least, besides the network


def certification_images(
    checkpoint: Checkpoint,
    subset: SubsetConfig,
    *,
    data: DataConfig | None = None,
    root: str | None = None,
    on_note: Callable[[str], None] | None = None,
) -> Dataset:
    """Returns the chosen test images, which must be of the kind that the network was trained on.

    Args:
        checkpoint: The network, which knows shape, grid and classes of its images.
        subset: Which of the test images.
        data: The data set, if not that of the training.
        root: Where the data set lies, if not where its settings say.
        on_note: Told when the images are not those of the data set that the network was trained with.
    """
    # The network knows shape, grid and classes of its images: another kind would be certified as nonsense.
    data = data or checkpoint.config.data
    everything = load_test(replace(data, root=root or data.root))
    if found := differing(checkpoint.info, everything.info):
        what, trained, here = found
        raise DataError(
            f"The network was trained on images of {what} {trained}, and these have {here}: point at the "
            "matching data set."
        )
    # Other images of the same kind are allowed, but somebody may have taken them by mistake.
    trained_on = checkpoint.manifest.get("test_data")
    if on_note and isinstance(trained_on, dict) and trained_on.get("fingerprint") != everything.fingerprint:
        on_note(
            f"note: these are not the test images of the training ({trained_on.get('name')}): here "
            f"{everything.info.name}, {len(everything)} images with fingerprint "
            f"{everything.fingerprint[:12]}..."
        )
    return select(everything, subset)


def ledger_images(checkpoint: Checkpoint | OwnModel, manifest: Manifest, root: str | None = None) -> Dataset:
    """Returns the images that a ledger is about.

    Raises LedgerError unless network and images are those that were certified.

    Args:
        checkpoint: The network, or a classifier with its source.
        manifest: The manifest of the ledger.
        root: Where the data set lies, if not where it lay in training.
    """
    check_weights(manifest, checkpoint.weights_hash)
    subset = SubsetConfig(indices=manifest.indices)
    if not isinstance(checkpoint, OwnModel):
        dataset = certification_images(checkpoint, subset, root=root)
    elif checkpoint.source is not None:
        data = checkpoint.source.data
        dataset = select(load_test(replace(data, root=root or data.root)), subset)
    else:
        raise LedgerError(f"The ledger does not say where {checkpoint.name} and its images come from.")
    if manifest.data is not None and dataset.fingerprint != manifest.data.fingerprint:
        raise LedgerError(
            f"The ledger was certified on other images than those of {manifest.data.name} here: name the "
            "folder of the data with --root."
        )
    return dataset


def certify_run(
    checkpoint: Checkpoint | OwnModel,
    dataset: Dataset,
    config: CertifyConfig,
    out: Path | str,
    *,
    workers: int | None = 1,
    cluster: Cluster | None = None,
    converted: Path | str | None = None,
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

    The rows do not depend on `workers` or `cluster`, the time column apart.

    Args:
        checkpoint: The network f, or any other classifier.
        dataset: The images x and their labels.
        config: sigma, n, alpha and everything else that the certificates depend on.
        out: The folder of the ledger, which is new, empty, or has a ledger with the same settings.
        workers: The number of processes; None takes one per core, on a cluster as many as fit.
        cluster: The Ray cluster whose workers certify.
        converted: Where converted networks are kept (default: in `out`).
        training: Gives the images that int8 is calibrated with (default: those of the checkpoint's config).
        shard: (i, n) takes every n-th image from the i-th on, i from 0; `results.merge` joins the ledgers.
        fresh: Throws away what the ledger holds.
        on_note: Told what the user should know of the classifier, and which workers were lost.
        on_convert: Told how many of the calibration images are read.
        on_start: Told how many images the ledger holds already.
        on_row: Told every finished image.
        on_votes: Told after every few passes how many samples were counted, if this process counts them.
        on_status: Told now and then what the workers of the cluster do.
    """
    if not len(dataset):
        raise ConfigError("No image is selected: widen the subset.")
    if workers is not None:
        at_least("workers", workers, 1)
    out = Path(out)
    reserve_ledger(out, ignore=(ENGINES,))
    info = dataset.info if isinstance(checkpoint, OwnModel) else checkpoint.info
    training = training or partial(_training_images, checkpoint)
    cache = ConversionCache(Path(converted or out / ENGINES), training, on_progress=on_convert)
    note = on_note or (lambda _: None)
    with ExitStack() as stack:
        # 1. A cluster that does not answer is noticed before anything is built.
        ray = None if cluster is None else stack.enter_context(cluster.connected())
        # 2. The smoothed classifier, with the seed of an earlier start.
        settings = config if fresh else with_earlier_seed(config, out)
        smoothed = Smoothed(checkpoint.model, info, settings, cache=cache)
        for reason in smoothed.notes:
            note(reason)
        # 3. The ledger, which holds the folder and refuses other settings; what it lacks is to be certified.
        manifest = make_manifest(checkpoint, dataset, smoothed, shard)
        of_other_shards = set(dataset.indices.tolist()) - set(manifest.expected or ())
        ledger = stack.enter_context(Ledger.open(out, manifest, fresh=fresh, ignore=(ENGINES,)))
        if on_start:
            on_start(len(ledger))
        skip = ledger.done | of_other_shards
        left = [i for i, index in enumerate(dataset.indices.tolist()) if index not in skip]
        # 4. Who certifies: this process, others of this machine, or the workers of the cluster.
        executor: Executor | None
        if ray is None:
            count = worker_count(settings, workers, len(left))
            executor = ProcessExecutor(count) if count > 1 else None
        else:
            on_status = on_status or (lambda _: None)
            need = _need(smoothed.config)
            executor = RayPool(ray, need, most=workers, on_note=note, on_status=on_status)
        if executor is None:
            rows = smoothed.certifier.records(dataset, skip=skip, on_votes=on_votes)
        else:
            worker = CertifyWorker.of(smoothed, dataset.image(0), None if ray else cache.folder)
            batches = _batches(dataset, left)
            results = stack.enter_context(executor).map(worker, batches)
            rows = chain.from_iterable(results)
        # 5. Rows come in the order of the images, and each is on the disk before the next one is looked at.
        total = len(dataset) - len(of_other_shards)
        for certified in _checked(rows, out):
            ledger.append(certified)
            if on_row:
                on_row(certified, len(ledger), total)
    return out


def _training_images(checkpoint: Checkpoint | OwnModel) -> Dataset:
    if isinstance(checkpoint, OwnModel):
        raise ConfigError("int8 needs training images, which a classifier of your own does not name.")
    return load(checkpoint.config.data).train


def abstention_note(log: Results) -> str | None:
    """Returns why a classifier abstains on nearly everything and what to do, or None if it does not."""
    abstained = float((log.prediction == ABSTAIN).mean()) if len(log) else 0.0
    if abstained < MANY_ABSTENTIONS:
        return None
    sigma = "" if log.sigma is None else f" of sigma {log.sigma:g}"
    return (
        f"it abstains on {abstained:.0%} of the images, because no class wins clearly under noise{sigma}. "
        "Probably the network was never trained with noise: put a denoiser in front of it (--denoiser "
        "zoo:denoiser, in Python sh.denoised), train it with noise, or certify with a smaller sigma."
    )


def _checked(rows: Iterable[Certified], out: Path) -> Iterator[Certified]:
    """Yields the rows and records how many samples were evaluated a second time.

    If the network turns out to be no function of one image, the rows that were written are void: the table
    gets another name, so that nobody takes it for a ledger.
    """
    checked: list[tuple[int, int]] = []
    try:
        for certified in rows:
            checked.append(certified.rechecked)
            yield certified
    except NotAFunctionError:
        void_ledger(out)
        raise
    # Earlier starts of this run counted too.
    samples, changed = (sum(column) for column in zip((0, 0), *checked, strict=True))
    earlier = recheck_facts(out)
    total = {"samples": earlier.get("samples", 0) + samples, "changed": earlier.get("changed", 0) + changed}
    write_json(out / RECHECK, earlier | total)


def void_ledger(out: Path | str) -> None:
    """Takes the rows of a ledger away from its readers."""
    Path(out, TABLE).replace(Path(out, VOID))


def recheck_facts(out: Path | str) -> dict[str, Any]:
    """Returns how many samples of a ledger were evaluated a second time, over all runs that wrote it."""
    path = Path(out, RECHECK)
    return load_json(path) if path.is_file() else {}


def with_earlier_seed(config: CertifyConfig, out: Path) -> CertifyConfig:
    """Returns `config` with the seed that was drawn for the ledger in `out`, if it names no other."""
    if config.seed is not None or not (out / FILE).is_file():
        return config
    return replace(config, seed=read_manifest(out).certify.seed)


def make_manifest(
    checkpoint: Checkpoint | OwnModel,
    dataset: Dataset,
    smoothed: Smoothed,
    shard: tuple[int, int] | None = None,
) -> Manifest:
    """Returns the manifest of a run, which says everything that its certificates depend on.

    Args:
        checkpoint: The network f, or any other classifier.
        dataset: The images x.
        smoothed: The smoothed classifier G with all of its settings.
        shard: (i, n) for every n-th image from the i-th on.
    """
    manifest = smoothed.manifest(dataset)
    if shard is not None:
        manifest = replace(manifest, shard=Shard(number=shard[0], of=shard[1]))
    if isinstance(checkpoint, OwnModel):
        facts = manifest.network | {"arch": checkpoint.name}
        if checkpoint.source is not None:
            facts["source"] = to_dict(checkpoint.source)
        return replace(manifest, weights=checkpoint.weights_hash, network=facts)
    return replace(
        manifest,
        weights=checkpoint.weights_hash,
        train_sigma=checkpoint.config.train.sigma,
        network=network_facts(checkpoint),
    )


def network_facts(checkpoint: Checkpoint) -> dict[str, Any]:
    """Returns what a reader of the ledger wants to know of the network; what is not known is left out."""
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


# Sharing the images out among workers.


def _need(config: CertifyConfig) -> Need:
    """Returns what a worker needs besides the network."""
    if config.device not in ("cpu", "cuda"):
        raise ConfigError(f"Ray chooses the GPU of a worker: use device cuda instead of {config.device!r}.")
    return Need(config.threads, int(config.device == "cuda"), WORKER_BYTES)


def worker_count(config: CertifyConfig, workers: int | None, images: int) -> int:
    """Returns how many processes share the images out: one per core unless `workers` says otherwise."""
    per_core = cores() // config.threads if config.device == "cpu" else 1
    return max(1, min(per_core if workers is None else workers, images))


def _batches(dataset: Dataset, positions: Sequence[int]) -> Iterator[Dataset]:
    """Reads the images at these positions, one by one: workers need not see the data set's files."""
    for position in positions:
        one = slice(position, position + 1)
        pixels = dataset.image(position)[None]
        yield ArrayDataset(pixels, dataset.labels[one], dataset.info, dataset.indices[one])


def probe_facts(counter: VoteCounter, image: Pixels) -> Json:
    """Returns what must be equal for two workers to compute the same function: the engine and its precision,
    and a hash of votes and logits on the first block of an image."""
    first_block = image, 0, Phase.PILOT, 0, counter.noise.block_size
    digest = hashlib.sha256(counter.votes(*first_block).counts.tobytes())
    for logits_LNC in counter.logits(*first_block):
        digest.update(logits_LNC.tobytes())
    return {"engine": counter.engine.describe(), "logits": digest.hexdigest()}


@dataclass
class CertifyWorker:
    """Certifies batches of images in another process, with an engine that it builds there.

    Args:
        model: The network.
        info: What images it takes.
        config: The settings, with their seed.
        folder: Where converted networks lie, if this machine has them.
        converted: The files of the converted networks by their hashes, if it does not.
        probe: An image, on which all workers must compute the same logits.
        facts: What the driver computes on it; None where worker and driver are the same machine.
    """

    model: MultiHead | BlackBox
    info: DataInfo
    config: CertifyConfig
    folder: Path | None
    converted: Mapping[str, Mapping[str, bytes]]
    probe: Pixels
    facts: Json | None

    @classmethod
    def of(cls, smoothed: Smoothed, probe: Pixels, folder: Path | None) -> CertifyWorker:
        """Returns a worker for this machine, or without a `folder` of converted networks for any other."""
        model, info, config = smoothed.model, smoothed.info, smoothed.config
        if folder is not None:
            return cls(model, info, config, folder, {}, probe, None)
        converted = {
            each.sha256: {name: (each.folder / name).read_bytes() for name in (*each.files, FACTS)}
            for each in smoothed.engine.converted
        }
        return cls(
            model, info, config, None, converted, probe, probe_facts(smoothed.certifier.counter, probe)
        )

    def prepare(self) -> None:
        """Builds the engine; raises WorkerError where it computes another function than the driver's."""
        # The converted network comes from the driver, so that every node computes the one that is certified.
        # It is written once for all workers of a machine, and loaded only if it has its hash.
        root, given = Path(tempfile.gettempdir()) / f"smoothheads-{os.getuid()}", []
        for sha256, files in self.converted.items():
            with exclusive(root, wait=True):
                if not (root / sha256).exists():
                    with new_folder(root / sha256) as partial:
                        for name, data in files.items():
                            (partial / name).write_bytes(data)
            given.append(load_converted(root / sha256, sha256))
        cache = ConversionCache(self.folder, given=tuple(given))
        self._certifier = Certifier(self.model, self.info, self.config, cache=cache)
        if self.facts is None:
            return
        # Equal logits on one block: the same function, up to what a block cannot show.
        found = differences(self.facts, probe_facts(self._certifier.counter, self.probe))
        engine = [f"{key} {here} instead of {stated}" for key, stated, here in found if key != "logits"]
        if found:
            logits = "other logits on the first block: its processor or its libraries round otherwise"
            raise WorkerError(f"This node computes {', '.join(engine) or logits}.")

    def __call__(self, images: Dataset) -> list[Certified]:
        """Certifies every image."""
        if not hasattr(self, "_certifier"):
            self.prepare()
        return list(self._certifier.records(images))
