"""smoothheads train RECIPE [overrides]"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import tyro

from smoothheads import recipes
from smoothheads.cli.common import duration, first_argument, parse, print_json, say, take_option
from smoothheads.cli.progress import Progress
from smoothheads.config import METHODS, RunConfig, from_dict, load_json
from smoothheads.errors import one_of

DESCRIPTION = """Train a classifier on noisy images and write a checkpoint.

RECIPE comes first: a name from `smoothheads info recipes`, or the config.json of an earlier run. Every field
of it can be overridden by an option below; --method NAME puts another base method (gaussian, stability,
consistency, smoothmix, smoothadv, macer, cat-rs, acr-targeted, drt) in its place first. Progress goes to the
screen, metrics to OUT/metrics.jsonl, the finished network to OUT/checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Train:
    run: Annotated[RunConfig, tyro.conf.arg(name="")]
    out: Path | None = None
    """Folder of this run (default: runs/RECIPE)."""
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
    name, rest = first_argument(arguments, "a recipe", "see `smoothheads info recipes`")
    method, rest = take_option(rest, "--method")
    config = load_recipe(name or "digits-some")
    config = config if method is None else with_method(config, method)
    args = parse(
        Train, rest, default=Train(run=config), prog=f"train {name or 'RECIPE'}", description=DESCRIPTION
    )
    out = args.out or Path("runs") / Path(name or "").stem

    from smoothheads.runs.train import train_run
    from smoothheads.training import EpochDone, Plan, StepDone

    with Progress("train") as progress:

        def on_plan(plan: Plan) -> None:
            cost = plan.model
            say(
                f"{cost.params:,} parameters, {cost.macs / 1e9:.4g} GMAC a copy "
                f"({cost.macs_paper / 1e9:.4g} in the paper's convention)\n"
                f"{plan.steps:,} steps of {plan.images_per_step} images, {plan.steps_per_epoch} an epoch; "
                f"about {duration(plan.seconds)} on this machine"
            )
            progress.set_total(plan.steps)

        def on_event(event: StepDone | EpochDone) -> None:
            if isinstance(event, StepDone):
                progress.update(event.step, f"epoch {event.epoch}, loss {event.loss:.3f}")

        checkpoint = train_run(
            args.run,
            out,
            resume=args.resume,
            on_plan=on_plan,
            on_event=on_event,
            save_seconds=args.save_seconds,
            tensorboard=args.tensorboard,
            workers=args.workers,
        )
    answer = {
        "checkpoint": str(checkpoint),
        "metrics": load_json(checkpoint / "manifest.json").get("metrics", {}),
    }
    if args.json:
        print_json(answer)
    else:
        print(checkpoint)


def with_method(config: RunConfig, name: str) -> RunConfig:
    """The same run with another base method, at that method's own defaults."""
    if name not in METHODS:
        raise one_of("method", name, METHODS)
    return replace(config, objective=replace(config.objective, method=METHODS[name]()))


def load_recipe(name: str) -> RunConfig:
    """By name, or from the config.json of a run or a checkpoint."""
    path = Path(name)
    if path.suffix != ".json":
        return recipes.get(name).config
    data = load_json(path)
    return from_dict(RunConfig, data.get("run", data))
