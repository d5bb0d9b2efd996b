"""smoothheads train RECIPE [overrides]"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import tyro

from smoothheads import ranks, recipes
from smoothheads.cli.common import (
    HELP,
    OutFolder,
    ResultCommand,
    first_argument,
    image_size,
    parse,
    print_json,
    say,
)
from smoothheads.cli.progress import Progress
from smoothheads.config import from_dict, load_json
from smoothheads.errors import ConfigError, duration
from smoothheads.training.config import RunConfig

if TYPE_CHECKING:
    from smoothheads.training.loop import EpochDone, Plan, StepDone

FEW_EASY: Final = 0.5
"""Fraction of easy images below which the user is told."""
MINUTE: Final = 60.0  # seconds that the suggested certification takes, about
LEAST_N, FEW_IMAGES = 1_000, 50


@dataclass(frozen=True, kw_only=True)
class Start:
    """Options that decide the defaults of all others, as the arguments of the recipe do."""

    data_name: Annotated[str | None, tyro.conf.arg(name="data.name")] = None
    """Train on another data set: cifar100, fashion-mnist, folder, npz, parquet, ..."""
    root: str | None = None
    """Where the data set lies (digits are built in)."""


@dataclass(frozen=True, kw_only=True)
class TrainCommand(Start, ResultCommand):
    """Train a classifier on noisy images and write a checkpoint.

    RECIPE comes first: a name from `smoothheads info recipes`, or the config.json of an earlier run. The
    options of the recipe choose among published values; then every setting can be overridden by its dotted
    name, as in --train.epochs 30. Progress goes to the screen, metrics to OUT/metrics.jsonl, the finished
    network to OUT/checkpoint."""

    config: Annotated[RunConfig, tyro.conf.arg(name="")]
    name: tyro.conf.Fixed[str] = ""
    members: int = 1
    """Train this many networks separately, from as many seeds, and join them to an ensemble."""
    out: OutFolder = None
    """Folder of this run (default: runs/RECIPE with its options)."""
    resume: bool = False
    """Go on with the run in OUT; on one CPU thread the result is that of a run never stopped, bit for bit."""
    save_seconds: float = 30.0
    """How often the resume state is saved."""
    tensorboard: bool = False
    """Write TensorBoard events too (needs the tensorboard extra)."""
    workers: int = 0
    """Threads that read image folders ahead; in-memory data needs none."""

    @classmethod
    def read(cls, arguments: list[str]) -> Self:
        """Returns the command, whose options depend on the recipe.

        Tyro reads the arguments twice: first those of the recipe, which give the RunConfig that holds the
        defaults of the dotted options, then all.
        """
        name, rest = first_argument(arguments, "a recipe", "see `smoothheads info recipes`")
        path = Path(name or "digits-some")
        recipe = _earlier(path) if path.suffix == ".json" else recipes.find(str(path))
        parameters = recipe.parameters
        # The options of the recipe are the arguments of its function.
        fields = [
            (key, parameter.annotation, dataclasses.field(default=parameter.default))
            for key, parameter in parameters.items()
        ]
        options = make_dataclass("Options", fields, frozen=True, kw_only=True)
        first: type[Start] = make_dataclass("Start", [], bases=(Start, options), frozen=True, kw_only=True)
        # First pass: what decides the defaults of everything else.
        start, _ = tyro.cli(first, args=rest, registry=HELP, add_help=False, return_unknown_args=True)
        chosen = {key: getattr(start, key) for key in parameters}
        config = recipe(**chosen)
        data = config.data if start.data_name is None else config.data.another(start.data_name)
        data = data if start.root is None else replace(data, root=start.root)
        # The folder of the run is named after the recipe and what was chosen otherwise.
        changed = [f"{value}" for key, value in chosen.items() if value != parameters[key].default]
        # Second pass: all options, whose defaults are the settings of the recipe.
        command: type[Self] = make_dataclass(
            "TrainCommand", [], bases=(cls, options), frozen=True, kw_only=True
        )
        return parse(
            command,
            rest,
            default=command(
                config=replace(config, data=data), name="-".join([recipe.name, *changed]), **chosen
            ),
            prog=f"train {name or 'RECIPE'}",
            description=f"{recipe.summary}.\n\n{cls.__doc__}" if name else cls.__doc__,
        )

    def run(self) -> None:
        with ranks.quiet():
            if ranks.restarted() and not self.resume:
                raise ConfigError("Add --resume: with torchrun --max-restarts it also begins new runs.")
            out = self.out or Path("runs") / self.name
            watcher = _Watcher(Progress("train"))
            checkpoint = self._train(out, watcher)
            # Under torchrun all ranks train, and the first one reports.
            if ranks.launched()[0] == 0:
                self._report(out, checkpoint, watcher)

    def _train(self, out: Path, watcher: _Watcher) -> Path:
        from smoothheads.runs.ensemble import train_members
        from smoothheads.runs.train import train_run

        with watcher.progress:
            settings: dict[str, Any] = {
                "resume": self.resume,
                "on_plan": watcher.plan,
                "on_event": watcher.event,
                "on_prepare": watcher.progress.prepare,
                "save_seconds": self.save_seconds,
                "tensorboard": self.tensorboard,
                "workers": self.workers,
            }
            if self.members == 1:
                return train_run(self.config, out, **settings)
            count = self.members
            settings["on_member"] = lambda k: say(f"network {k} of {count}")
            return train_members(self.config, out, count, **settings)

    def _report(self, out: Path, checkpoint: Path, watcher: _Watcher) -> None:
        """Prints what came of the training, and what to do next."""
        metrics = load_json(checkpoint / "manifest.json").get("metrics", {})
        if self.json:
            print_json({"checkpoint": str(checkpoint), "metrics": metrics})
            return
        clean = self.config.train.sigma == 0
        if (accuracy := metrics.get("validation", {}).get("accuracy")) is not None:
            say(f"Validation accuracy {'without' if clean else 'under'} noise: {accuracy:.1%}.")
        easy = metrics.get("easy_fraction", ())
        teaches = len(easy) > 1 and self.config.objective.teaching.weights in ("soft", "hard")
        # Images that are not easy count less and less, which may pay in ACR and cost whole classes.
        if teaches and (mean := sum(easy) / len(easy)) < FEW_EASY:
            say(
                f"Teaching called only {mean:.0%} of the training images easy (loss at most lambda), and the "
                "others count less: see in `smoothheads report` in how many classes anything is certified. "
                "A higher --objective.teaching.lambda-last calls more of them easy."
            )
        if clean:
            say(f"next: smoothheads certify {out} --denoiser zoo:denoiser, or another denoiser")
        elif self.config.objective.method.trains_classifier:
            say(f"next: smoothheads certify {out} {watcher.suggestion(self.config, metrics)}")
        print(checkpoint)


def _earlier(path: Path) -> recipes.Recipe:
    """Returns the settings of an earlier run as a recipe, with another method or sigma."""
    data = load_json(path)
    earlier = from_dict(RunConfig, data.get("run", data))

    def config(
        sigma: float = earlier.train.sigma,
        method: str = earlier.objective.method.name,
    ) -> RunConfig:
        changes: dict[str, Any] = {"train.sigma": sigma, "objective.method": {"name": method}}
        return earlier.with_overrides(changes)

    return recipes.Recipe(config, source=str(path), methods={})


class _Watcher:
    """Shows plan, steps and epochs as lines and a bar."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.accuracy = progress, ""
        self.images_per_epoch = 0

    def plan(self, plan: Plan) -> None:
        self.images_per_epoch = plan.steps_per_epoch * plan.images_per_step
        cost = plan.model
        say(
            f"images of {image_size(plan.image)}\n"
            f"{cost.params:,} parameters, {cost.macs / 1e9:.4g} GMAC a draw "
            f"({cost.macs_paper / 1e9:.4g} in the paper's convention)\n"
            f"{plan.steps:,} steps of {plan.images_per_step} images, {plan.steps_per_epoch} an epoch"
        )
        self.progress.begin(plan.steps, plan.done)

    def event(self, event: StepDone | EpochDone) -> None:
        from smoothheads.training.loop import StepDone

        if isinstance(event, StepDone):
            self.progress.update(event.step, f"epoch {event.epoch}, loss {event.loss:.3f}{self.accuracy}")
        elif "accuracy" in event.metrics.get("validation", {}):
            self.accuracy = f", accuracy {event.metrics['validation']['accuracy']:.1%}"

    def suggestion(self, config: RunConfig, metrics: Mapping[str, Any]) -> str:
        """Returns options for a certification of about a minute, and what the defaults would take."""
        if not self.images_per_epoch or not metrics.get("seconds"):
            return f"--n {LEAST_N} --first {FEW_IMAGES}"
        # Training a draw costs about three forward passes (the backward pass is two), so that the time of an
        # epoch tells that of a vote.
        draws = self.images_per_epoch * config.objective.method.trained_draws
        vote = metrics["seconds"] / (3 * draws)
        # As many samples as fit into a minute for a few images, then as many images as fit for these.
        n = next((n for n in (100_000, 10_000) if n * vote * FEW_IMAGES < MINUTE), LEAST_N)
        first = max(10, min(500, int(MINUTE / (n * vote) / 10) * 10))
        time, full = duration(first * n * vote), duration(1000 * 100_000 * vote)
        return f"--n {n} --first {first}   (about {time}; without options {full} for 1,000 images)"
