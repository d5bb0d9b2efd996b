"""smoothheads train RECIPE [overrides]"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from smoothheads import ranks, recipes
from smoothheads.cli.common import HELP, first_argument, image_size, parse, print_json, say
from smoothheads.cli.progress import Progress
from smoothheads.config import from_dict, load_json
from smoothheads.errors import ConfigError, duration
from smoothheads.training.config import RunConfig

if TYPE_CHECKING:
    from smoothheads.training.loop import EpochDone, Plan, StepDone

DESCRIPTION = """Train a classifier on noisy images and write a checkpoint.

RECIPE comes first: a name from `smoothheads info recipes`, or the config.json of an earlier run. The options
of the recipe choose among published values; then every setting can be overridden by its dotted name, as in
--train.epochs 30. Progress goes to the screen, metrics to OUT/metrics.jsonl, the finished network to
OUT/checkpoint."""

FEW_EASY = 0.5
MINUTE = 60.0  # seconds that the suggested certification takes, about
LEAST_N, FEW_IMAGES = 1_000, 50


@dataclass(frozen=True, kw_only=True)
class Start:
    """What decides the defaults of all other options, besides the arguments of the recipe."""

    data_name: Annotated[str | None, tyro.conf.arg(name="data.name")] = None
    """Train on another data set: cifar100, fashion-mnist, folder, npz, parquet, ..."""
    root: str | None = None
    """Where the data set lies (digits are built in)."""


@dataclass(frozen=True, kw_only=True)
class Train(Start):
    run: Annotated[RunConfig, tyro.conf.arg(name="")]
    members: int = 1
    """Train this many networks separately, from as many seeds, and join them to an ensemble."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder of this run (default: runs/RECIPE with its options)."""
    resume: bool = False
    """Go on with the run in OUT; on one CPU thread the result is that of a run never stopped, bit for bit."""
    save_seconds: float = 30.0
    """How often the resume state is saved."""
    tensorboard: bool = False
    """Write TensorBoard events too (needs the tensorboard extra)."""
    workers: int = 0
    """Loader processes for image folders; in-memory data needs none."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    with ranks.quiet():
        args, name = _parse(arguments)
        if ranks.restarted() and not args.resume:
            raise ConfigError("Add --resume: with torchrun --max-restarts it also begins new runs.")
        out = args.out or Path("runs") / name
        show = _Show(Progress("train"))
        checkpoint = _train(args, out, show)
        if ranks.launched()[0] == 0:
            _report(args, out, checkpoint, show)


def _parse(arguments: list[str]) -> tuple[Train, str]:
    """Returns what to do, and a name for the run.

    Tyro reads the arguments twice: first those of the recipe, which give the RunConfig that holds the
    defaults of the dotted options, then all.
    """
    name, rest = first_argument(arguments, "a recipe", "see `smoothheads info recipes`")
    path = Path(name or "digits-some")
    recipe = _earlier(path) if path.suffix == ".json" else recipes.find(str(path))
    parameters = recipe.parameters
    fields = [
        (key, parameter.annotation, dataclasses.field(default=parameter.default))
        for key, parameter in parameters.items()
    ]
    options = make_dataclass("Options", fields, frozen=True, kw_only=True)
    first: type[Start] = make_dataclass("Start", [], bases=(Start, options), frozen=True, kw_only=True)
    start, _ = tyro.cli(
        first,
        args=rest,
        registry=HELP,
        add_help=False,
        return_unknown_args=True,
    )
    chosen = {key: getattr(start, key) for key in parameters}
    config = recipe(**chosen)
    data = config.data if start.data_name is None else config.data.another(start.data_name)
    data = data if start.root is None else replace(data, root=start.root)
    command = make_dataclass("Train", [], bases=(Train, options), frozen=True, kw_only=True)
    args: Train = parse(
        command(run=replace(config, data=data), **chosen),
        rest,
        prog=f"train {name or 'RECIPE'}",
        description=DESCRIPTION if name is None else f"{recipe.summary}.\n\n{DESCRIPTION}",
    )
    changed = [f"{value}" for key, value in chosen.items() if value != parameters[key].default]
    return args, "-".join([recipe.name, *changed])


def _earlier(path: Path) -> recipes.Recipe:
    """Returns the settings of an earlier run as a recipe, with another method or sigma."""
    data = load_json(path)
    earlier = from_dict(RunConfig, data.get("run", data))

    def config(
        sigma: recipes.setups.Sigma = earlier.train.sigma,
        method: recipes.setups.MethodName = earlier.objective.method.name,
    ) -> RunConfig:
        changes: dict[str, Any] = {"train.sigma": sigma, "objective.method": {"name": method}}
        return earlier.with_overrides(changes)

    return recipes.Recipe(config, source=str(path), methods={})


def _train(args: Train, out: Path, show: _Show) -> Path:
    from smoothheads.runs.ensemble import train_members
    from smoothheads.runs.train import train_run

    with show.progress:
        settings: dict[str, Any] = {
            "resume": args.resume,
            "on_plan": show.plan,
            "on_event": show.event,
            "on_prepare": show.progress.prepare,
            "save_seconds": args.save_seconds,
            "tensorboard": args.tensorboard,
            "workers": args.workers,
        }
        if args.members == 1:
            return train_run(args.run, out, **settings)
        count = args.members
        return train_members(
            args.run, out, count, on_member=lambda k: say(f"network {k} of {count}"), **settings
        )


def _report(args: Train, out: Path, checkpoint: Path, show: _Show) -> None:
    metrics = load_json(checkpoint / "manifest.json").get("metrics", {})
    if args.json:
        print_json({"checkpoint": str(checkpoint), "metrics": metrics})
        return
    clean = args.run.train.sigma == 0
    if (accuracy := metrics.get("validation", {}).get("accuracy")) is not None:
        say(f"Validation accuracy {'without' if clean else 'under'} noise: {accuracy:.1%}.")
    easy = metrics.get("easy_fraction", ())
    if len(easy) > 1 and args.run.objective.teaching.weights in ("soft", "hard"):
        mean = sum(easy) / len(easy)
        if mean < FEW_EASY:
            # Images that are not easy count less and less, which may pay in ACR and cost whole classes.
            say(
                f"Teaching called only {mean:.0%} of the training images easy (loss at most lambda), and the "
                "others count less: see in `smoothheads report` in how many classes anything is certified. "
                "A higher --objective.teaching.lambda-last calls more of them easy."
            )
    if clean:
        say("next: put a denoiser in front of it, sh.denoised(classifier, denoiser, sigma), and certify that")
    elif args.run.objective.method.trains_classifier:
        say(f"next: smoothheads certify {out} {show.suggestion(args.run, metrics)}")
    print(checkpoint)


class _Show:
    """Plan, steps and epochs as lines and a bar."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.accuracy = progress, ""
        self.images = 0  # of an epoch

    def plan(self, plan: Plan) -> None:
        self.images = plan.steps_per_epoch * plan.images_per_step
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

    def suggestion(self, run: RunConfig, metrics: Mapping[str, Any]) -> str:
        """Returns options with which a certification takes about a minute, and what the defaults would take.

        Training a draw costs about three forward passes (the backward pass is two), so that the time of an
        epoch tells that of a vote.
        """
        if not self.images or not metrics.get("seconds"):
            return f"--n {LEAST_N} --first {FEW_IMAGES}"
        vote = metrics["seconds"] / (3 * self.images * run.objective.method.trained_draws)
        n = next((n for n in (100_000, 10_000) if n * vote * FEW_IMAGES < MINUTE), LEAST_N)
        first = max(10, min(500, int(MINUTE / (n * vote) / 10) * 10))
        time = duration(first * n * vote)
        full = duration(1000 * 100_000 * vote)
        return f"--n {n} --first {first}   (about {time}; without options {full} for 1,000 images)"
