"""The one training loop: every method, every number of heads."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from smoothheads import ranks, seeding
from smoothheads.data import Dataset
from smoothheads.data.loader import Batch, Loader
from smoothheads.device import autocast, computes_bfloat16, parse
from smoothheads.errors import ConfigError, TrainingError
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.config import ObjectiveConfig
from smoothheads.objectives.method import Losses, Step
from smoothheads.objectives.objective import Objective, StepTerms
from smoothheads.objectives.presets import warn_if_unlike
from smoothheads.objectives.soft_labels import class_frequencies, right_shares
from smoothheads.training.config import TrainConfig
from smoothheads.training.meter import Meter
from smoothheads.training.shards import StepRows, own_shards, require_images
from smoothheads.training.validate import denoising_psnr, head_cosines, noisy_accuracy


@dataclass(frozen=True, slots=True)
class StepDone:
    step: int
    """Steps finished so far, over all epochs."""
    steps: int
    epoch: int
    loss: float


@dataclass(frozen=True, slots=True)
class EpochDone:
    epoch: int
    epochs: int
    metrics: dict[str, Any]


@dataclass(frozen=True, slots=True)
class TrainState:
    """Everything that decides how training goes on, given the data and the settings."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]

    def part(self, name: str) -> dict[str, Tensor]:
        """The tensors of `model`, `optimizer`, `objective` or `curriculum`, by their names there."""
        prefix = f"{name}."
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


def resolve(config: TrainConfig) -> TrainConfig:
    """`auto` choices made for this machine, so that they can be recorded."""
    if config.precision != "auto":
        return config
    native = computes_bfloat16(parse(config.device))
    return replace(config, precision="bfloat16" if native else "float32")


class Trainer:
    """Trains `model` in place: iterate over `run()`; between two events `state()` can be taken.

    Where ranks have met, all of them run it with the same arguments and hold the same state at every event.
    """

    def __init__(
        self,
        model: MultiHead,
        train: Dataset,
        *,
        config: TrainConfig,
        objective: ObjectiveConfig,
        validation: Dataset | None = None,
        augment: bool = False,
        workers: int = 0,
        prepared: Tensor | None = None,
    ) -> None:
        """`prepared` is what the method's `prepare` gave for the training images."""
        self.config = resolve(config)
        self.device = parse(ranks.own_device(config.device))
        self.layout = torch.channels_last if config.channels_last else torch.contiguous_format
        self.model = model.to(device=self.device, memory_format=self.layout)  # type: ignore[call-overload]
        self.validation = validation
        self.objective = Objective(objective, classes=train.info.classes, epochs=config.epochs)
        method = self.objective.method
        method.require(heads=len(model.heads))
        self.objective.teaching.check_labels(np.bincount(train.labels, minlength=train.info.classes))
        warn_if_unlike(objective.preset, len(model.heads))
        if prepared is not None and len(prepared) != len(train):
            expected = f"what {method.name} prepared for {len(train)} training images"
            raise ConfigError(expected, f"{len(prepared)} rows", "prepare it on these images")
        self.prepared = prepared
        images = (
            config.batch if config.batch_unit == "images" else max(1, config.batch // method.trained_draws)
        )
        shards = own_shards(config.shards, ranks.rank(), ranks.count())
        self.loader = Loader(train, images, config.seed, augment=augment, workers=workers, shards=shards)
        require_images(self.loader)
        heads = list(model.heads.parameters())
        known = {id(p) for p in heads}
        trunk = [p for p in model.parameters() if id(p) not in known]
        groups = [{"params": trunk, "scale": 1.0}, {"params": heads, "scale": config.head_lr_scale}]
        self.optimizer: torch.optim.Optimizer
        if config.optimizer == "adam":
            self.optimizer = torch.optim.Adam(groups, lr=config.lr, weight_decay=config.weight_decay)
        else:
            self.optimizer = torch.optim.SGD(
                groups,
                lr=config.lr,
                momentum=config.momentum,
                weight_decay=config.weight_decay,
                nesterov=config.nesterov,
            )
        self.epoch, self.step_in_epoch = 1, 0
        self.meter = Meter()
        self.curriculum = method.curriculum(len(train))

    @property
    def steps(self) -> int:
        return self.config.epochs * self.loader.steps_per_epoch

    @property
    def step(self) -> int:
        """Steps finished, over all epochs."""
        return (self.epoch - 1) * self.loader.steps_per_epoch + self.step_in_epoch

    def run(self) -> Iterator[StepDone | EpochDone]:
        """From where the state stands to the last epoch."""
        while self.epoch <= self.config.epochs:
            started = time.monotonic()
            order = self._order()
            self.model.train()
            for batch in self.loader.epoch(self.epoch, start_step=self.step_in_epoch, order=order):
                loss = self._train_step(batch)
                self.step_in_epoch += 1
                yield StepDone(self.step, self.steps, self.epoch, loss)
            metrics = self._epoch_metrics() | {"seconds": round(time.monotonic() - started, 3)}
            done = EpochDone(self.epoch, self.config.epochs, metrics)
            self.epoch, self.step_in_epoch, self.meter = self.epoch + 1, 0, Meter()
            yield done

    def _order(self) -> Tensor | None:
        """Which images this epoch shows; none for every image once."""
        if self.curriculum is None:
            return None
        if self.step_in_epoch == 0:
            self.curriculum.refresh(self.epoch, self._right_shares)
        return self.curriculum.order(
            self.epoch, seeding.generator(self.config.seed, "curriculum", self.epoch)
        )

    def _right_shares(self, draws: int) -> Tensor:
        dataset = self.loader.dataset
        frequencies = class_frequencies(
            self.model,
            dataset,
            sigma=self.config.sigma,
            draws=draws,
            seed=seeding.derive(self.config.seed, "curriculum", self.epoch),
            device=self.device,
        )
        return right_shares(frequencies, dataset)

    def _train_step(self, batch: Batch) -> float:
        lr = self.config.learning_rate(self.step, self.loader.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["scale"]
        self.optimizer.zero_grad(set_to_none=True)
        images = self.loader.step_sizes()[self.step_in_epoch]
        loss = self._accumulated(batch) if self.config.shards == 1 else self._sharded(batch, images)
        self.optimizer.step()
        self.meter.add({"loss": [loss]}, images)
        self.meter.images += images
        return loss

    def _accumulated(self, batch: Batch) -> float:
        generator = seeding.generator(self.config.seed, "noise", self.step, device=self.device)
        total = 0.0
        parts = min(self.config.accumulate, len(batch.images))
        for part in range(parts):
            piece = Batch(*(tensor.tensor_split(parts)[part] for tensor in batch))
            share = len(piece.images) / len(batch.images)
            with autocast(self.device, self.config.precision):
                terms = self.objective(self.as_step(piece, generator))
            loss = self._loss(terms, share, with_diversity=part == 0)
            self._require_finite(loss)
            loss.backward()  # type: ignore[no-untyped-call]
            self._watch(terms, len(piece.images))
            total += float(loss.detach())
        return total

    def _sharded(self, batch: Batch, images: int) -> float:
        """The own micro-batches one by one; where the pace wants to see them, all forwards come first."""
        shards = self.loader.shards
        sizes = [end - begin for begin, end in pairwise(shards.bounds(images))]
        parts = [torch.split(tensor, sizes) for tensor in batch]
        pieces = [Batch(*tensors) for tensors in zip(*parts, strict=True)]
        rows = StepRows(self.model)
        together = len(pieces) if self.objective.teaching.needs_whole_batch else 1
        for first in range(0, len(pieces), together):
            group = pieces[first : first + together]
            numbers = shards.own[first : first + together]
            shares = [len(piece.images) / images for piece in group]
            seen = [self._forward(*part, rows) for part in zip(group, numbers, shares, strict=True)]
            self._update_teaching([losses for losses, _ in seen], group)
            for piece, number, share, (losses, moved) in zip(group, numbers, shares, seen, strict=True):
                with autocast(self.device, self.config.precision):
                    terms = self.objective.terms(losses, piece.labels.to(self.device))
                loss = self._loss(terms, share, with_diversity=number == 0)
                loss.backward()  # type: ignore[no-untyped-call]
                rows.add(moved, terms, loss, share)
        whole = rows.finish()
        self._require_finite(whole.loss)
        self._watch(whole, images)
        return float(whole.loss)

    def _watch(self, terms: StepTerms, images: int) -> None:
        self.meter.add({name: values_L.tolist() for name, values_L in terms.watched.items()}, images)

    def _forward(
        self, batch: Batch, number: int, share: float, rows: StepRows
    ) -> tuple[Losses, list[Tensor]]:
        """A micro-batch's losses and its share of the change of the buffers; its number keys its noise."""
        generator = seeding.generator(self.config.seed, "noise", self.step, number, device=self.device)
        with (
            seeding.drawing(self.config.seed, "network", self.step, number),
            rows.forward(share) as moved,
            autocast(self.device, self.config.precision),
        ):
            losses = self.objective.method(self.as_step(batch, generator))
        return losses, moved

    def _update_teaching(self, losses: list[Losses], pieces: list[Batch]) -> None:
        """Shows the smoothed losses of the batch to the teaching rule, of all ranks if it needs them."""
        teaching = self.objective.teaching
        smoothed_LN = torch.cat([part.smoothed_LN.detach() for part in losses], dim=1)
        labels_N = torch.cat([piece.labels for piece in pieces]).to(self.device)
        if teaching.needs_whole_batch:
            rows = torch.cat([smoothed_LN, labels_N.unsqueeze(0).to(smoothed_LN.dtype)])
            rows = ranks.side_by_side(rows)
            smoothed_LN, labels_N = rows[:-1], rows[-1].long()
        generator = seeding.generator(self.config.seed, "teachers", self.step, device=self.device)
        teaching.update(self.epoch, smoothed_LN, labels_N, generator)

    def as_step(self, batch: Batch, generator: torch.Generator) -> Step:
        return Step(
            model=self.model,
            images=batch.images.to(self.device, memory_format=self.layout),
            labels=batch.labels.to(self.device),
            prepared=None if self.prepared is None else self.prepared[batch.positions].to(self.device),
            sigma=self.config.sigma,
            generator=generator,
            epoch=self.epoch,
        )

    def _loss(self, terms: StepTerms, share: float, *, with_diversity: bool) -> Tensor:
        loss = terms.loss * share
        diversity = self.objective.diversity(self.model) if with_diversity else None
        return loss if diversity is None else loss + diversity

    def _require_finite(self, loss: Tensor) -> None:
        if not torch.isfinite(loss):
            raise TrainingError(
                "a finite loss",
                f"{float(loss.detach())} in epoch {self.epoch}, step {self.step + 1}",
                "lower the learning rate, or train in float32; the last saved state is still good",
            )

    def _epoch_metrics(self) -> dict[str, Any]:
        lr = self.config.learning_rate(self.step - 1, self.loader.steps_per_epoch)
        metrics: dict[str, Any] = {"epoch": self.epoch, "lr": lr}
        metrics |= self.meter.means() | head_cosines(self.model)
        if self.validation is None or not len(self.validation):
            return metrics
        if not self.objective.method.trains_classifier:
            psnr = denoising_psnr(self.model, self.validation, seed=self.config.seed, device=self.device)
            metrics["validation"] = {"psnr": psnr}
        else:
            metrics["validation"] = noisy_accuracy(
                self.model,
                self.validation,
                sigma=self.config.sigma,
                seed=self.config.seed,
                device=self.device,
            )
        return metrics

    def state(self) -> TrainState:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {
                f"optimizer.{index}.{key}": value for key, value in slots.items() if value is not None
            }
        tensors |= {f"objective.{name}": value for name, value in self.objective.state_dict().items()}
        if self.curriculum is not None:
            tensors |= {f"curriculum.{name}": value for name, value in self.curriculum.state_dict().items()}
        meta = {
            "epoch": self.epoch,
            "step_in_epoch": self.step_in_epoch,
            "meter": {"images": self.meter.images, "sums": self.meter.sums},
        }
        return TrainState({name: value.detach().clone() for name, value in tensors.items()}, meta)

    def restore(self, state: TrainState) -> None:
        """Goes on from `state`, which must be of the same model and settings."""
        self.model.load_state_dict(state.part("model"))
        self.objective.load_state_dict(state.part("objective"))
        if self.curriculum is not None:
            self.curriculum.load_state_dict(state.part("curriculum"))
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in state.part("optimizer").items():
            index, key = name.split(".")
            slots.setdefault(int(index), {})[key] = value
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": slots})
        self.epoch, self.step_in_epoch = int(state.meta["epoch"]), int(state.meta["step_in_epoch"])
        self.meter = Meter(**state.meta["meter"])
