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
from contextlib import contextmanager
from dataclasses import replace
from io import FileIO
from pathlib import Path
from types import FrameType
from typing import Any

import safetensors.torch
import torch
from safetensors import safe_open
from torch import Tensor

from smoothheads import checkpoint, ranks
from smoothheads.checkpoint import MANIFEST, Checkpoint
from smoothheads.checkpoint.join import differing
from smoothheads.config import from_dict, leaves, load_json, require_equal, to_dict
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

SHARED_SECONDS = 10.0  # that a network folder may take to show a new file
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
    """Trains as `config` says and returns the checkpoint folder.

    Refuses a folder that already holds a run unless `resume` is set, and a resume with another configuration
    or from other initial weights; a run that has saved nothing yet is replaced. The folder is claimed only
    when everything that training needs is there. `on_prepare(done, total)` follows what a method computes
    before training, and `read` gives the whole splits of the data.

    Under torchrun every rank calls it; the first one alone claims, writes and reports.
    """
    out = Path(out)
    own_shards(config.train.shards, *ranks.launched())
    with ranks.joined(config.train.device):
        start = _start(config)
        config = replace(
            config, train=resolve(config.train), init_sha256=start.weights_hash if start else None
        )
        with _folder(out, config, resume) as finished:
            if finished:
                return out / CHECKPOINT
            started = time.monotonic()
            with threads(config.train.threads):
                data = load(config.data, read)
                device = parse(ranks.own_device(config.train.device))
                model = _initial(config, data.train.info, start)
                prepared = _prepared(config, data.train, out / PREPARED, device, on_prepare)
                trainer = Trainer(
                    model,
                    data.train,
                    config=config.train,
                    objective=config.objective,
                    validation=data.validation,
                    augment=augments(config.data),
                    workers=workers,
                    prepared=prepared,
                )
                images = f"{data.train.fingerprint} {data.validation.fingerprint}"
                metrics_size, earlier = _restore(trainer, out / STATE, images)
                started -= earlier
                _require_same(trainer, config)
                if not ranks.first():
                    _follow(trainer)
                    return out / CHECKPOINT
                write_json(out / CONFIG, to_dict(config))
                if prepared is not None:  # for the next start
                    about = {"images": data.train.fingerprint}
                    content = safetensors.torch.save({"prepared": prepared.contiguous()}, about)
                    write_atomic(out / PREPARED, content)
                if on_plan:
                    on_plan(trainer.plan())
                last = _loop(
                    trainer,
                    out,
                    metrics_size,
                    started,
                    images=images,
                    on_event=on_event,
                    save_seconds=save_seconds,
                    tensorboard=tensorboard,
                )
            info = trainer.loader.dataset.info
            test = {"name": data.test.info.name, "fingerprint": data.test.fingerprint}
            seconds = round(time.monotonic() - started, 3)
            check_held(out)
            checkpoint.save(
                out / CHECKPOINT, trainer.model, config, info, metrics=last, seconds=seconds, test_data=test
            )
            (out / STATE).unlink(missing_ok=True)
    return out / CHECKPOINT


@contextmanager
def _folder(out: Path, config: RunConfig, resume: bool) -> Iterator[bool]:
    """The run's folder for the first rank alone, and for the others to read; whether the run has finished."""
    if ranks.first():
        reserve(out, _is_run)
        with exclusive(out):
            _check_folder(out, config, resume)
            finished = (out / CHECKPOINT).is_dir()
            ranks.from_first(json.dumps([finished, holder(out)]))
            yield finished
        return
    finished, held_by = json.loads(ranks.from_first(""))
    _require_shared(out, held_by)
    yield finished


def _require_shared(out: Path, held_by: str) -> None:
    """Raises StorageError if this rank does not see the folder that the first one has locked: after a restart
    another node may be the first, and would start anew."""
    deadline = time.monotonic() + SHARED_SECONDS
    while (seen := holder(out)) != held_by:
        if time.monotonic() > deadline:
            got = f"one that {seen} holds" if seen else "none, or one that nobody holds"
            raise StorageError(
                f"the run that {held_by} holds at {out}", got, "choose an --out that all nodes share"
            )
        time.sleep(0.1)


def _require_same(trainer: Trainer, config: RunConfig) -> None:
    """Raises WorkerError where ranks would not do the same: nothing is checked without others."""
    if ranks.count() == 1:
        return
    told = to_dict(config)
    first = json.loads(ranks.from_first(json.dumps(told)))
    remedy = "start all ranks with the same command on machines of one kind"
    require_equal(first, told, WorkerError, "the settings of rank 0", remedy)
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


def _follow(trainer: Trainer) -> None:
    """What the other ranks do: they compute, and stop when all stop."""
    with Interrupt() as interrupt:
        for _ in trainer.run():
            if ranks.any_of(interrupt.requested):
                raise KeyboardInterrupt


def _start(config: RunConfig) -> Checkpoint | None:
    """The checkpoint that training begins with, if it is of the same network and still the same."""
    if config.init is None:
        return None
    start = open_checkpoint(config.init)
    there = to_dict(start.config.model) | {"init_sha256": start.weights_hash}
    wanted = to_dict(config.model) | {"init_sha256": config.init_sha256 or start.weights_hash}
    remedy = "train the network of the checkpoint, or name another one"
    require_equal(there, wanted, CheckpointError, f"what {config.init} holds", remedy)
    return start


def _initial(config: RunConfig, info: DataInfo, start: Checkpoint | None) -> MultiHead:
    if start is None:
        return build(
            config.model,
            shape=info.shape,
            classes=info.classes,
            mean=info.mean,
            std=info.std,
            seed=config.train.seed,
        )
    if found := differing(start.info, info):
        what, there, here = found
        raise DataError(f"images of {what} {there}, as of {config.init}", here, "choose the matching data")
    start.model.weigh(None)  # learned for logits that training will change
    return start.model


def _prepared(
    config: RunConfig,
    dataset: Dataset,
    path: Path,
    device: torch.device,
    on_prepare: Callable[[int, int], None] | None,
) -> Tensor | None:
    """What the method wants to know about the training images: from the file if an earlier start has made it,
    else computed; nothing is written."""
    if path.exists():
        with safe_open(path, framework="pt") as file:
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


def _loop(
    trainer: Trainer,
    out: Path,
    metrics_size: int,
    started: float,
    *,
    images: str,
    on_event: OnEvent | None,
    save_seconds: float,
    tensorboard: bool,
) -> dict[str, Any]:
    """Trains to the end, writing metrics and now and then the state; the metrics of the last epoch."""
    last: dict[str, Any] = {}
    saved = time.monotonic()
    with (
        _appending(out / METRICS, metrics_size) as metrics,
        TensorBoard(out, enabled=tensorboard) as board,
        Interrupt() as interrupt,
    ):
        for event in trainer.run():
            if isinstance(event, EpochDone):
                last = event.metrics
                append(metrics, json.dumps(last).encode() + b"\n", out / METRICS)
                board.add(event)
            if on_event:
                on_event(event)
            stop = ranks.any_of(interrupt.requested)
            if stop or time.monotonic() - saved > save_seconds:
                saved = time.monotonic()
                facts = {"metrics_size": metrics.tell(), "seconds": saved - started, "images": images}
                checkpoint.save_state(out / STATE, trainer.state(), **facts)
            if stop:
                raise KeyboardInterrupt
    return last


def _is_run(folder: Path) -> bool:
    """Not a checkpoint, which has a file of that name too."""
    return (folder / CONFIG).is_file() and not (folder / MANIFEST).exists()


def _check_folder(out: Path, config: RunConfig, resume: bool) -> None:
    """Whether the folder is new, or holds this very run if that is to go on."""
    path = out / CONFIG
    if not path.exists():
        return
    metrics = out / METRICS
    written = metrics.exists() and metrics.stat().st_size > 0
    saved = written or (out / STATE).exists() or (out / CHECKPOINT).exists()
    if saved and not resume:
        raise CheckpointError(
            f"a new folder at {out}", "one that holds a run", "add --resume or choose another --out"
        )
    stored, now = to_dict(from_dict(RunConfig, load_json(path))), to_dict(config)
    if saved:
        remedy = "resume with the original settings or choose another --out"
        require_equal(stored, now, CheckpointError, f"what {out} was started with", remedy)
    elif stored != now:
        (out / PREPARED).unlink(missing_ok=True)  # it was made for the other settings


def _restore(trainer: Trainer, path: Path, images: str) -> tuple[int, float]:
    """Restores a saved state and returns how many bytes of metrics and seconds of training belong to it.

    `images` are the fingerprints of training and validation images, which must be those of the state.
    """
    if not path.exists():
        return 0, 0.0
    state, facts = checkpoint.load_state(path)
    if facts.get("images") != images:
        raise CheckpointError(
            f"The training images are not those that the run in {path.parent} began with; restore them, or "
            "choose another --out and train anew."
        )
    trainer.restore(state)
    return int(facts["metrics_size"]), float(facts.get("seconds", 0.0))


@contextmanager
def _appending(path: Path, size: int) -> Iterator[FileIO]:
    """The metrics file cut back to the restored state, so that no epoch stands in it twice."""
    with storage(path):
        file = path.open("ab", buffering=0)
    with file:
        file.truncate(size)
        file.seek(size)
        yield file


class Interrupt:
    """Inside the block the first SIGINT or SIGTERM is only noted, so that the state can be saved between two
    steps; a second one stops at once."""

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
    """Writes the metrics of every epoch for TensorBoard; without `enabled` it is not even imported."""

    def __init__(self, folder: Path, *, enabled: bool) -> None:
        self._writer: Any = None
        if enabled:
            try:
                from torch.utils.tensorboard import SummaryWriter
            except ImportError:
                raise MissingExtraError("tensorboard", "tensorboard") from None
            self._writer = SummaryWriter(folder / "tensorboard")

    def __enter__(self) -> TensorBoard:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def add(self, event: EpochDone) -> None:
        for key, value in leaves(event.metrics) if self._writer is not None else ():
            name, several = key.replace(".", "/"), isinstance(value, list)
            for head, number in enumerate(value if several else [value], start=1):
                self._writer.add_scalar(f"{name}/head-{head}" if several else name, number, event.epoch)
