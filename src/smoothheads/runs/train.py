"""A training run in a folder: configuration, metrics, resume state, and at the end the checkpoint.

Killed at any moment and resumed, it goes on from the last saved state to the bit-identical result.
"""

from __future__ import annotations

import hashlib
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from types import FrameType

import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor

from smoothheads import checkpoint, ranks
from smoothheads.checkpoint import MANIFEST, Checkpoint
from smoothheads.checkpoint.join import differing
from smoothheads.config import Json, from_dict, leaves, load_json, require_equal, to_dict
from smoothheads.data import DataInfo, Dataset, augments, load, read_split
from smoothheads.data.splits import Read
from smoothheads.device import parse, threads
from smoothheads.errors import CheckpointError, DataError, MissingExtraError, StorageError, WorkerError
from smoothheads.files import (
    append,
    check_held,
    exclusive,
    holder,
    reserve,
    storage,
    write_atomic,
    write_json,
)
from smoothheads.models import build
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.method import Preparation
from smoothheads.provenance import versions
from smoothheads.runs.models import CHECKPOINT, CONFIG, METRICS, PREPARED, STATE, open_checkpoint
from smoothheads.training import RunConfig
from smoothheads.training.loop import EpochDone, Plan, StepDone, Trainer, resolve
from smoothheads.training.shards import own_shards

ORIGIN = {
    "init_sha256": "initial weights",
    "training_images": "training images",
    "validation_images": "validation images",
}
"""What a resume must begin with too, by the names of its hashes."""
SHARED_SECONDS = 10.0  # how long a network folder may take to show a new file
OnPlan = Callable[[Plan], None]
OnEvent = Callable[[StepDone | EpochDone], None]


def train_run(
    config: RunConfig,
    out: Path | str,
    *,
    resume: bool = False,
    on_plan: OnPlan | None = None,
    on_event: OnEvent | None = None,
    save_seconds: float = 30.0,
    tensorboard: bool = False,
    workers: int = 0,
    on_prepare: Callable[[int, int], None] | None = None,
    read: Read = read_split,
) -> Path:
    """Trains and returns the folder of the checkpoint.

    A folder that already holds a run is refused unless `resume` is set; so is a resume with other settings,
    other initial weights or other training images. A run that has saved nothing yet is replaced. Under
    torchrun every rank calls this function; the first one alone holds the folder, writes and reports.

    Args:
        config: The settings of the run.
        out: The folder of the run; the checkpoint is written below it.
        resume: Go on with the run in `out`, or begin a new one if there is none.
        on_plan: Is called once, with the size of the run.
        on_event: Is called after every step and epoch.
        save_seconds: How often the state for a resume is saved.
        tensorboard: Write events for TensorBoard too.
        workers: Threads that read image folders ahead.
        on_prepare: Is called with (done, total) while the method prepares the training images.
        read: Reads a whole split of the data; studies pass one that remembers.
    """
    out = Path(out)
    own_shards(config.train.shards, *ranks.launched())
    with ranks.joined(config.train.device):
        # 1. Everything that can be wrong is checked before the folder is touched.
        start = None if config.init is None else open_checkpoint(config.init)
        if start is not None:
            remedy = "train the network of the checkpoint, or name another one"
            stored, now = to_dict(start.config.model), to_dict(config.model)
            require_equal(stored, now, CheckpointError, f"those of {config.init}", remedy)
        config = replace(config, train=resolve(config.train))
        origin: Json = {"init_sha256": start.weights_hash if start else None}
        with _held_folder(out, config, resume) as finished:
            if finished:
                _check_origin(load_json(out / CHECKPOINT / MANIFEST), origin, out)
                return out / CHECKPOINT
            started = time.monotonic()
            with threads(config.train.threads):
                # 2. Data, network, and what the method computes about the training images beforehand.
                data = load(config.data, read)
                origin["training_images"] = data.train.fingerprint
                origin["validation_images"] = data.validation.fingerprint
                device = parse(ranks.own_device(config.train.device))
                prepared = _prepared(config, data.train, out / PREPARED, device, on_prepare)
                trainer = Trainer(
                    _initial_model(config, data.train.info, start),
                    data.train,
                    config=config.train,
                    objective=config.objective,
                    validation=data.validation,
                    augment=augments(config.data),
                    workers=workers,
                    prepared=prepared,
                )
                # 3. The state of an earlier start, if there is one. Its time counts too.
                metrics_size = 0
                if (out / STATE).exists():
                    state, facts = checkpoint.load_state(out / STATE)
                    _check_origin(facts, origin, out)
                    trainer.restore(state)
                    metrics_size = int(facts["metrics_size"])
                    started -= float(facts.get("seconds", 0.0))
                _check_ranks_agree(trainer, config)
                if not ranks.first():  # it computes as the first rank does, and writes nothing
                    with Interrupt() as interrupt:
                        for _ in trainer.run():
                            if ranks.any_of(interrupt.requested):
                                raise KeyboardInterrupt
                    return out / CHECKPOINT
                write_json(out / CONFIG, to_dict(config))
                if prepared is not None:  # for the next start
                    about = {"images": data.train.fingerprint}
                    content = safetensors.torch.save({"prepared": prepared.contiguous()}, about)
                    write_atomic(out / PREPARED, content)
                if on_plan:
                    on_plan(trainer.plan())
                # 4. The training itself, and at the end the checkpoint in place of the state.
                metrics = _run_epochs(
                    trainer,
                    out,
                    metrics_size,
                    started,
                    origin,
                    on_event=on_event,
                    save_seconds=save_seconds,
                    tensorboard=tensorboard,
                )
            check_held(out)
            checkpoint.save(
                out / CHECKPOINT,
                trainer.model,
                config,
                trainer.loader.dataset.info,
                metrics=metrics,
                seconds=round(time.monotonic() - started, 3),
                test_data={"name": data.test.info.name, "fingerprint": data.test.fingerprint},
                **origin,
            )
            (out / STATE).unlink(missing_ok=True)
    return out / CHECKPOINT


@contextmanager
def _held_folder(out: Path, config: RunConfig, resume: bool) -> Iterator[bool]:
    """Yields whether the run has finished. The first rank holds the folder, the others only read it."""
    if ranks.first():
        # A checkpoint has a config.json too, but is no run that could go on.
        reserve(out, lambda folder: (folder / CONFIG).is_file() and not (folder / MANIFEST).exists())
        with exclusive(out):
            _check_folder(out, config, resume)
            finished = (out / CHECKPOINT).is_dir()
            ranks.from_first(json.dumps([finished, holder(out)]))
            yield finished
        return
    finished, held_by = json.loads(ranks.from_first(""))
    # After a restart another node may be the first rank; if it saw another folder, it would begin anew.
    deadline = time.monotonic() + SHARED_SECONDS
    while (seen := holder(out)) != held_by:
        if time.monotonic() > deadline:
            by = f"held by {seen}" if seen else "not held by anybody"
            raise StorageError(
                f"{out} is {by} on this node but held by {held_by} on the first: choose an --out that all "
                "nodes share."
            )
        time.sleep(0.1)
    yield finished


def _check_folder(out: Path, config: RunConfig, resume: bool) -> None:
    """Raises CheckpointError unless the folder is new, or holds this very run and that is to go on."""
    path = out / CONFIG
    if not path.exists():
        return
    # Nothing is lost where no metrics, state or checkpoint was written yet.
    metrics = out / METRICS
    written = metrics.exists() and metrics.stat().st_size > 0
    saved = written or (out / STATE).exists() or (out / CHECKPOINT).exists()
    if saved and not resume:
        raise CheckpointError(f"{out} holds a run already: add --resume, or choose another --out.")
    # A resume with other settings would be a training that no settings describe.
    stored, now = to_dict(from_dict(RunConfig, load_json(path))), to_dict(config)
    if saved:
        remedy = "resume with the original settings or choose another --out"
        require_equal(stored, now, CheckpointError, f"those {out} was started with", remedy)
    elif stored != now:
        (out / PREPARED).unlink(missing_ok=True)  # it was made for the other settings


def _check_origin(stored: Json, origin: Json, out: Path) -> None:
    """Raises CheckpointError where initial weights or images are not those that the run began with."""
    for key, what in ORIGIN.items():
        if key in origin and stored.get(key) != origin[key]:
            raise CheckpointError(
                f"The {what} are not those that the run in {out} began with: restore them, or choose "
                "another --out and train anew."
            )


def _check_ranks_agree(trainer: Trainer, config: RunConfig) -> None:
    """Raises WorkerError where ranks would compute different things; one rank alone checks nothing."""
    if ranks.count() == 1:
        return
    # The same settings, ...
    settings = to_dict(config)
    first = json.loads(ranks.from_first(json.dumps(settings)))
    remedy = "start all ranks with the same command on machines of one kind"
    require_equal(first, settings, WorkerError, "the settings of rank 0", remedy)
    # ... and the same weights, optimizer state and prepared images, by a hash over all of their bytes.
    state = trainer.state()
    content = hashlib.sha256(json.dumps(state.meta, sort_keys=True).encode())
    tensors = state.tensors | ({} if trainer.prepared is None else {"prepared": trainer.prepared})
    for name, tensor in sorted(tensors.items()):
        plain = tensor.cpu().contiguous().flatten().view(torch.uint8)
        content.update(name.encode() + plain.numpy().tobytes())
    ranks.require_same(
        {
            "versions": json.dumps(versions(), sort_keys=True),
            "instructions of the processor": torch.backends.cpu.get_cpu_capability(),
            "training images": trainer.loader.dataset.fingerprint,
            "weights and state": content.hexdigest(),
        }
    )


def _initial_model(config: RunConfig, info: DataInfo, start: Checkpoint | None) -> MultiHead:
    """Returns a fresh network, or that of the checkpoint."""
    if start is None:
        facts = {"shape": info.shape, "classes": info.classes, "mean": info.mean, "std": info.std}
        return build(config.model, **facts, seed=config.train.seed)  # type: ignore[arg-type]
    if not config.objective.method.trains_classifier:
        info = replace(
            info, shape=(info.shape[0], *start.info.shape[1:])
        )  # a denoiser takes images of any size
    if found := differing(start.info, info):
        what, theirs, ours = found
        raise DataError(f"{config.init} saw images of {what} {theirs}, not {ours}: choose its data set.")
    start.model.weigh(None)  # these were learned for logits that training will change
    return start.model


def _prepared(
    config: RunConfig,
    dataset: Dataset,
    path: Path,
    device: torch.device,
    on_prepare: Callable[[int, int], None] | None,
) -> Tensor | None:
    """Returns what the method computes about the training images, or what an earlier start computed."""
    if path.exists():
        with safe_open(path, framework="pt") as file:
            # Of other images it would be of no use, and of other settings `_check_folder` has removed it.
            if (file.metadata() or {}).get("images") == dataset.fingerprint:
                saved: Tensor = file.get_tensor("prepared")
                return saved
    return config.objective.method.prepare(
        Preparation(
            dataset=dataset,
            device=device,
            open_model=lambda folder: open_checkpoint(folder).model,
            on_progress=on_prepare or (lambda *_: None),
        )
    )


def _run_epochs(
    trainer: Trainer,
    out: Path,
    metrics_size: int,
    started: float,
    origin: Json,
    *,
    on_event: OnEvent | None,
    save_seconds: float,
    tensorboard: bool,
) -> Json:
    """Trains to the end, writing metrics and state, and returns the metrics of the last epoch."""
    last: Json = {}
    saved = time.monotonic()
    path = out / METRICS
    with storage(path):
        file = path.open("ab", buffering=0)
    with file, TensorBoard(out) if tensorboard else nullcontext() as board, Interrupt() as interrupt:
        # Epochs after the restored state come again, so their lines go.
        file.truncate(metrics_size)
        file.seek(metrics_size)
        for event in trainer.run():
            # The line of an epoch is on the disk before the state that follows it can be.
            if isinstance(event, EpochDone):
                last = event.metrics
                append(file, json.dumps(last).encode() + b"\n", path)
                if board is not None:
                    board.add(event)
            if on_event:
                on_event(event)
            # All ranks stop after the same step, or those that go on would wait for ever.
            stop = ranks.any_of(interrupt.requested)
            if stop or time.monotonic() - saved > save_seconds:
                saved = time.monotonic()
                facts = {"metrics_size": file.tell(), "seconds": saved - started}
                checkpoint.save_state(out / STATE, trainer.state(), **facts, **origin)
            if stop:
                raise KeyboardInterrupt
    return last


class Interrupt:
    """Notes the first SIGINT or SIGTERM, so that the state can be saved; a second one stops at once."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():  # handlers cannot be set elsewhere
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


class TensorBoard:
    """Writes the metrics of every epoch for TensorBoard; a context manager."""

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise MissingExtraError("tensorboard", "tensorboard") from None
        self._writer = SummaryWriter(folder / "tensorboard")

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        self._writer.close()

    def add(self, event: EpochDone) -> None:
        """Writes numbers under their dotted names, and lists as one curve per head."""
        for key, value in leaves(event.metrics):
            name, several = key.replace(".", "/"), isinstance(value, list)
            for head, number in enumerate(value if several else [value], start=1):
                self._writer.add_scalar(f"{name}/head-{head}" if several else name, number, event.epoch)
