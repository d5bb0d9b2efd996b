"""The one training loop: every method, every number of heads, any number of processes."""

from __future__ import annotations

import math
import time
import warnings
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
from smoothheads.models.cost import Cost, cost
from smoothheads.models.multihead import MultiHead
from smoothheads.objectives.config import ObjectiveConfig, warn_if_unlike
from smoothheads.objectives.method import Losses, Step
from smoothheads.objectives.objective import Objective
from smoothheads.objectives.soft_labels import class_frequencies
from smoothheads.training.config import TrainConfig
from smoothheads.training.metrics import Meter, denoising_psnr, head_cosines, noisy_accuracy
from smoothheads.training.shards import MicroBatchSum, own_shards


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
class Plan:
    """The size of a training run, known before it starts."""

    model: Cost
    image: tuple[int, int, int]
    images_per_step: int
    steps_per_epoch: int
    steps: int
    done: int
    """Steps of an earlier run that goes on."""


@dataclass(frozen=True, slots=True)
class TrainState:
    """Everything that decides how training goes on, given the data and the settings."""

    tensors: dict[str, Tensor]
    meta: dict[str, Any]

    def part(self, name: str) -> dict[str, Tensor]:
        """Returns the tensors of `model`, `optimizer`, `objective` or `curriculum`, by their names there."""
        prefix = f"{name}."
        return {k.removeprefix(prefix): v for k, v in self.tensors.items() if k.startswith(prefix)}


def resolve(config: TrainConfig) -> TrainConfig:
    """Returns the settings with `auto` decided for this machine, so that the choice can be recorded."""
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
        """Prepares training; nothing is trained before `run`.

        Args:
            model: the network; its heads are trained at `head_lr_scale` times the learning rate.
            validation: images that are held out; their accuracy under noise is part of the metrics.
            augment: crop and flip the training images.
            workers: threads that read image folders ahead.
            prepared: what the method's `prepare` gave for the training images.
        """
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
        if method.trains_classifier and len(np.unique(train.labels)) == 1:
            warnings.warn(
                f"All {len(train)} training images have the label {int(train.labels[0])}: the network will "
                "learn to say nothing else. Check the labels.",
                stacklevel=2,
            )
        if prepared is not None and len(prepared) != len(train):
            raise ConfigError(
                f"{method.name} prepared {len(prepared)} images, but there are {len(train)} training images: "
                "prepare it on these."
            )
        self.prepared = prepared
        # A batch of draws is a batch of images times the draws of each.
        images = (
            config.batch if config.batch_unit == "images" else max(1, config.batch // method.trained_draws)
        )
        shards = own_shards(config.shards, ranks.rank(), ranks.count())
        self.loader = Loader(train, images, config.seed, augment=augment, workers=workers, shards=shards)
        smallest = min(self.loader.step_sizes())
        if smallest < config.shards:
            raise ConfigError(
                f"A step of {smallest} images cannot be split into {config.shards} micro-batches: lower "
                "--train.shards or raise --train.batch."
            )
        if not any(p.requires_grad for p in model.parameters()):
            raise ConfigError(
                "The network has no parameter to train: quantised modules cannot learn, and frozen ones need "
                "requires_grad_(True)."
            )
        # Trunk and heads have learning rates of their own.
        heads = list(model.heads.parameters())
        of_heads = {id(p) for p in heads}
        trunk = [p for p in model.parameters() if id(p) not in of_heads]
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
        """Returns the steps of the whole training."""
        return self.config.epochs * self.loader.steps_per_epoch

    @property
    def step(self) -> int:
        """Returns the steps finished, over all epochs."""
        return (self.epoch - 1) * self.loader.steps_per_epoch + self.step_in_epoch

    def plan(self) -> Plan:
        """Returns the sizes of the run; time left is known after a few steps."""
        info = self.loader.dataset.info
        return Plan(
            model=cost(self.model, info.shape),
            image=info.shape,
            images_per_step=min(self.loader.images_per_step, len(self.loader.dataset)),
            steps_per_epoch=self.loader.steps_per_epoch,
            steps=self.steps,
            done=self.step,
        )

    def run(self) -> Iterator[StepDone | EpochDone]:
        """Trains from where the state stands to the last epoch, and yields every step and epoch."""
        while self.epoch <= self.config.epochs:
            # Take the steps of an epoch, or those that an interrupted run has left.
            started = time.monotonic()
            order = self._order()
            self.model.train()
            for batch in self.loader.epoch(self.epoch, start_step=self.step_in_epoch, order=order):
                loss = self._train_step(batch)
                self.step_in_epoch += 1
                yield StepDone(self.step, self.steps, self.epoch, loss)
            # Measure the epoch, and leave a state that stands at the start of the next one.
            metrics = self._epoch_metrics() | {"seconds": round(time.monotonic() - started, 3)}
            done = EpochDone(self.epoch, self.config.epochs, metrics)
            self.epoch, self.step_in_epoch, self.meter = self.epoch + 1, 0, Meter()
            if done.epoch == done.epochs:
                self._warn_if_constant(metrics)
            yield done

    def _order(self) -> Tensor | None:
        """Returns the positions of the images that this epoch shows; None shows every image once."""
        if self.curriculum is None:
            return None
        key = ("curriculum", self.epoch)

        def measure(draws: int) -> Tensor:
            # The fraction of an image's draws that are given its own class.
            dataset, seed = self.loader.dataset, seeding.derive(self.config.seed, *key)
            frequencies_NC = class_frequencies(
                self.model, dataset, sigma=self.config.sigma, draws=draws, seed=seed, device=self.device
            )
            return frequencies_NC[torch.arange(len(dataset)), torch.tensor(dataset.labels)]

        if self.step_in_epoch == 0:
            self.curriculum.refresh(self.epoch, measure)
        return self.curriculum.order(self.epoch, seeding.generator(self.config.seed, *key))

    def _train_step(self, batch: Batch) -> float:
        """Takes one optimiser step: the sum of its micro-batches, whichever process computes them.

        Lines are those of Algorithm 1 of the SOME paper.
        """
        # The learning rates of this step, of the trunk and of the heads.
        lr = self.config.learning_rate(self.step, self.loader.steps_per_epoch)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * group["scale"]
        self.optimizer.zero_grad(set_to_none=True)
        # This process's micro-batches, each with the number that keys its noise.
        images = self.loader.step_sizes()[self.step_in_epoch]
        shards = self.loader.shards
        sizes = [end - begin for begin, end in pairwise(shards.bounds(images))]
        parts = zip(*(torch.split(tensor, sizes) for tensor in batch), strict=True)
        pieces = [(number, Batch(*part)) for number, part in zip(shards.own, parts, strict=True)]
        total = MicroBatchSum(self.model, shards.count)
        # Where weights depend on the whole batch, all forward passes come before the first backward pass.
        together = len(pieces) if self.objective.teaching.needs_whole_batch else 1
        for first in range(0, len(pieces), together):
            group_pieces = pieces[first : first + together]
            # Lines 1 and 2: draw noise, and take the losses of every head on every image.
            forwards = [self._forward(number, piece, images, total) for number, piece in group_pieces]
            # Line 3: teaching sees the smoothed losses S (eq. 4) and moves its thresholds lambda.
            self._update_teaching([losses for losses, _ in forwards], [piece for _, piece in group_pieces])
            for (number, piece), (losses, moved) in zip(group_pieces, forwards, strict=True):
                fraction = len(piece.images) / images
                # Line 4: the weighted loss (eq. 5 and 6) of this micro-batch, as its fraction of the mean.
                with autocast(self.device, self.config.precision):
                    terms = self.objective.terms(losses, piece.labels.to(self.device))
                loss = terms.loss * fraction
                # Line 5: the cosine constraint (eq. 3) is about the weights: it enters once per step.
                cosine = self.objective.diversity(self.model) if number == 0 else None
                loss = loss if cosine is None else loss + cosine
                # Line 6: gradients add up over the micro-batches and all ranks, then all parameters move.
                loss.backward()  # type: ignore[no-untyped-call]
                total.add(moved, terms, loss, fraction)
        summed = total.finish()
        if not torch.isfinite(summed.loss):
            raise TrainingError(
                f"The loss is {float(summed.loss)} in epoch {self.epoch}, step {self.step + 1}: lower the "
                "learning rate, or train in float32. The last saved state is still good."
            )
        self.optimizer.step()
        loss_value = float(summed.loss)
        metrics = {name: values_L.tolist() for name, values_L in summed.metrics.items()}
        self.meter.add(metrics | {"loss": [loss_value]}, images)
        return loss_value

    def _forward(
        self, number: int, piece: Batch, images: int, total: MicroBatchSum
    ) -> tuple[Losses, list[Tensor]]:
        """Returns a micro-batch's losses and its fraction of the change of the buffers."""
        # The number of the micro-batch keys its noise and the network's own draws, such as dropout.
        path = ("noise", self.step) if total.single else ("noise", self.step, number)
        generator = seeding.generator(self.config.seed, *path, device=self.device)
        step = Step(
            model=self.model,
            images=piece.images.to(self.device, memory_format=self.layout),
            labels=piece.labels.to(self.device),
            prepared=None if self.prepared is None else self.prepared[piece.positions].to(self.device),
            sigma=self.config.sigma,
            generator=generator,
            epoch=self.epoch,
        )
        with (
            seeding.drawing(self.config.seed, "network", self.step, number),
            total.forward(len(piece.images) / images) as moved,
            autocast(self.device, self.config.precision),
        ):
            losses = self.objective.method(step)
        return losses, moved

    def _update_teaching(self, losses: list[Losses], pieces: list[Batch]) -> None:
        """Shows the smoothed losses of the batch to the teaching rule, of all ranks if it needs them."""
        teaching = self.objective.teaching
        smoothed_LN = torch.cat([part.smoothed_LN.detach() for part in losses], dim=1)
        labels_N = torch.cat([piece.labels for piece in pieces]).to(self.device)
        # Labels travel as one more row of the losses.
        if teaching.needs_whole_batch:
            rows = torch.cat([smoothed_LN, labels_N.unsqueeze(0).to(smoothed_LN.dtype)])
            rows = ranks.side_by_side(rows)
            smoothed_LN, labels_N = rows[:-1], rows[-1].long()
        teaching.update(self.epoch, smoothed_LN, labels_N)

    def _epoch_metrics(self) -> dict[str, Any]:
        # The learning rate of the last step, the means over the epoch, and how similar the heads are.
        lr = self.config.learning_rate(self.step - 1, self.loader.steps_per_epoch)
        metrics: dict[str, Any] = {"epoch": self.epoch, "lr": lr}
        metrics |= self.meter.means() | head_cosines(self.model)
        if self.validation is None or not len(self.validation):
            return metrics
        # Held-out images: the accuracy of a classifier under noise, or what a denoiser restores.
        draw: dict[str, Any] = {"seed": self.config.seed, "device": self.device}
        if self.objective.method.trains_classifier:
            validation = noisy_accuracy(self.model, self.validation, sigma=self.config.sigma, **draw)
            return metrics | {"validation": validation}
        return metrics | {"validation": {"psnr": denoising_psnr(self.model, self.validation, **draw)}}

    def _warn_if_constant(self, metrics: dict[str, Any]) -> None:
        """Warns at the end of training if the classifier has learned to give one class to every image."""
        classes = self.loader.dataset.info.classes
        if not self.objective.method.trains_classifier or classes == 1:
            return
        found = []
        # A head that guesses has the loss ln C.
        if min(metrics["head_loss"]) > 0.98 * math.log(classes):
            found.append(f"its loss is that of guessing among {classes} classes (ln {classes})")
        validation = metrics.get("validation", {})
        if validation.get("predicted_classes") == 1 and len(self.validation or ()) > 1:
            found.append("it gives one class to every validation image")
        if found:
            warnings.warn(
                f"The network has learned nothing: {' and '.join(found)}. Train longer, or lower the "
                "learning rate, the noise or the weight of a regulariser.",
                stacklevel=2,
            )

    def state(self) -> TrainState:
        """Returns copies of everything that decides how training goes on."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for index, slots in self.optimizer.state_dict()["state"].items():
            tensors |= {
                f"optimizer.{index}.{key}": value for key, value in slots.items() if value is not None
            }
        tensors |= {
            f"objective.{name}": value for name, value in self.objective.teaching.state_dict().items()
        }
        if self.curriculum is not None:
            tensors |= {f"curriculum.{name}": value for name, value in self.curriculum.state_dict().items()}
        meta = {
            "epoch": self.epoch,
            "step_in_epoch": self.step_in_epoch,
            "meter": {"images": self.meter.images, "sums": self.meter.sums},
        }
        return TrainState({name: value.detach().clone() for name, value in tensors.items()}, meta)

    def restore(self, state: TrainState) -> None:
        """Continues from `state`, which must be of the same model and settings."""
        self.model.load_state_dict(state.part("model"))
        self.objective.teaching.load_state_dict(state.part("objective"))
        if self.curriculum is not None:
            self.curriculum.load_state_dict(state.part("curriculum"))
        # The optimiser's tensors are named INDEX.KEY, by the index of their parameter.
        slots: dict[int, dict[str, Tensor]] = {}
        for name, value in state.part("optimizer").items():
            index, key = name.split(".")
            slots.setdefault(int(index), {})[key] = value
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": slots})
        self.epoch, self.step_in_epoch = int(state.meta["epoch"]), int(state.meta["step_in_epoch"])
        self.meter = Meter(**state.meta["meter"])
