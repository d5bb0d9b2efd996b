"""A training run in a folder: configuration, metrics, resume state, and at the end the checkpoint.

Killed at any moment and resumed, it goes on from the last saved state to the bit-identical result.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from smoothheads import checkpoint
from smoothheads.checkpoint import Checkpoint
from smoothheads.checkpoint.join import differing
from smoothheads.config import RunConfig, from_dict, load_json, to_dict
from smoothheads.data import DataInfo, Splits, augments, load
from smoothheads.device import parse, threads
from smoothheads.errors import CheckpointError, DataError
from smoothheads.files import exclusive, storage, write_json
from smoothheads.models import MultiHead, build
from smoothheads.results.manifest import differences
from smoothheads.runs.interrupt import Interrupt
from smoothheads.runs.layout import CHECKPOINT, CONFIG, METRICS, STATE, open_checkpoint
from smoothheads.runs.teacher import soft_labels
from smoothheads.runs.tensorboard import Writer
from smoothheads.training import EpochDone, Plan, StepDone, Trainer, make_plan
from smoothheads.training.loop import resolve

OnPlan = Callable[[Plan], None]
OnEvent = Callable[[StepDone | EpochDone], None]


def train_run(
    config: RunConfig,
    out: Path,
    *,
    resume: bool = False,
    on_plan: OnPlan | None = None,
    on_event: OnEvent | None = None,
    save_seconds: float = 30.0,
    tensorboard: bool = False,
    workers: int = 0,
) -> Path:
    """Trains as `config` says and returns the checkpoint folder.

    Refuses a folder that already holds a run unless `resume` is set, and a resume with another configuration
    or from other initial weights.
    """
    start = _start(config)
    config = replace(config, train=resolve(config.train), init_sha256=start.weights_hash if start else None)
    with exclusive(out):
        _claim(out, config, resume)
        if (out / CHECKPOINT).is_dir():
            return out / CHECKPOINT
        with threads(config.train.threads):
            trainer = _trainer(config, load(config.data), start, out, workers)
            metrics_size = _restore(trainer, out / STATE)
            if on_plan:
                on_plan(make_plan(trainer))
            with (
                _appending(out / METRICS, metrics_size) as metrics,
                Writer(out, enabled=tensorboard) as writer,
            ):
                last = _loop(
                    trainer, out, metrics, writer=writer, on_event=on_event, save_seconds=save_seconds
                )
        info = trainer.loader.dataset.info
        checkpoint.save(out / CHECKPOINT, trainer.model, config, info, metrics=last)
        (out / STATE).unlink(missing_ok=True)
    return out / CHECKPOINT


def _trainer(config: RunConfig, data: Splits, start: Checkpoint | None, out: Path, workers: int) -> Trainer:
    return Trainer(
        _initial(config, data.train.info, start),
        data.train,
        config=config.train,
        objective=config.objective,
        validation=data.validation,
        augment=augments(config.data),
        workers=workers,
        soft_labels=soft_labels(config.objective.method, data.train, out, parse(config.train.device)),
    )


def _start(config: RunConfig) -> Checkpoint | None:
    """The checkpoint that training begins with, if it is of the same network and still the same."""
    if config.init is None:
        return None
    start = open_checkpoint(Path(config.init))
    found = differences(to_dict(start.config.model), to_dict(config.model))
    if config.init_sha256 not in (None, start.weights_hash):
        found.append(("init_sha256", str(config.init_sha256), start.weights_hash))
    if found:
        raise CheckpointError(
            f"what {config.init} holds ({'; '.join(f'{key} = {there}' for key, there, _ in found)})",
            "; ".join(f"{key} = {here}" for key, _, here in found),
            "train the network of the checkpoint, or name another one",
        )
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


def _loop(
    trainer: Trainer,
    out: Path,
    metrics: IO[bytes],
    *,
    writer: Writer,
    on_event: OnEvent | None,
    save_seconds: float,
) -> dict[str, Any]:
    last: dict[str, Any] = {}
    saved = time.monotonic()
    with Interrupt() as interrupt:
        for event in trainer.run():
            if isinstance(event, EpochDone):
                last = event.metrics
                _append_line(metrics, last, out / METRICS)
                writer.add(event)
            if on_event:
                on_event(event)
            if interrupt.requested or time.monotonic() - saved > save_seconds:
                checkpoint.save_state(out / STATE, trainer.state(), metrics_size=metrics.tell())
                saved = time.monotonic()
            interrupt.raise_if_requested()
    return last


def _claim(out: Path, config: RunConfig, resume: bool) -> None:
    """Writes the configuration of a new run, or checks that a resumed run has the same."""
    path = out / CONFIG
    if not path.exists():
        write_json(path, to_dict(config))
        return
    if not resume:
        raise CheckpointError(
            f"a new folder at {out}", "one that holds a run", "add --resume or choose another --out"
        )
    stored = from_dict(RunConfig, load_json(path))
    found = differences(to_dict(stored), to_dict(config))
    if found:
        raise CheckpointError(
            f"what {out} was started with ({'; '.join(f'{key} = {old}' for key, old, _ in found)})",
            "; ".join(f"{key} = {new}" for key, _, new in found),
            "resume with the original settings or choose another --out",
        )


def _restore(trainer: Trainer, path: Path) -> int:
    """How many bytes of metrics belong to the restored state."""
    if not path.exists():
        return 0
    state, facts = checkpoint.load_state(path)
    trainer.restore(state)
    return int(facts["metrics_size"])


@contextmanager
def _appending(path: Path, size: int) -> Iterator[IO[bytes]]:
    """The metrics file cut back to the restored state, so that no epoch stands in it twice."""
    with storage(path):
        file = path.open("ab")
    with file:
        file.truncate(size)
        file.seek(size)
        yield file


def _append_line(file: IO[bytes], values: dict[str, Any], path: Path) -> None:
    with storage(path):
        file.write(json.dumps(values).encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
