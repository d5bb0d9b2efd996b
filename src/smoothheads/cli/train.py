"""smoothheads train RECIPE [overrides]"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from smoothheads import cookbook, ranks
from smoothheads.cli.common import (
    first_argument,
    image_size,
    parse,
    print_json,
    say,
    short_help,
    take_option,
)
from smoothheads.cli.progress import Progress
from smoothheads.config import from_dict, load_json
from smoothheads.errors import ConfigError
from smoothheads.objectives.method import METHODS
from smoothheads.training.config import RunConfig

if TYPE_CHECKING:
    from smoothheads.training.loop import EpochDone, Plan, StepDone

DESCRIPTION = """Train a classifier on noisy images and write a checkpoint.

RECIPE comes first: a name from `smoothheads info recipes`, a benchmark (digits, cifar10-16px-resnet8,
mnist-lenet, cifar10-resnet110, imagenet-resnet50), or the config.json of an earlier run. --structure,
--method and --sigma put others in place of the recipe's, with the values published for the combination; then
every field can be overridden. Progress goes to the screen, metrics to OUT/metrics.jsonl, the finished network
to OUT/checkpoint."""

FEW_EASY = 0.5
COMMON = {
    "--structure NAME": "single, some (heads with teaching), 5heads (without), dnn5 (trained apart), ...",
    "--method NAME": "gaussian, consistency, smoothmix, smoothadv, macer, ... (`smoothheads info methods`)",
    "--sigma FLOAT": "standard deviation of the noise, for pixels in [0, 1]",
    "--data.name NAME": "another data set: cifar100, fashion-mnist, folder, npz, parquet, ...",
    "--root PATH": "where the data set lies (digits are built in)",
    "--model.arch NAME": "another network (`smoothheads info architectures`)",
    "--train.epochs INT": "",
    "--train.batch INT": "noise draws per step",
    "--train.seed INT": "",
    "--train.device NAME": "cpu or cuda",
    "--train.threads INT": "",
    "--train.shards INT": "micro-batches of a step, for torchrun with any number of ranks that divides it",
    "--init PATH": "checkpoint to start from",
    "-o, --out PATH": "folder of this run (default: runs/RECIPE)",
    "--resume": "go on with the run in OUT",
    "--json": "print the result as JSON",
}


@dataclass(frozen=True, kw_only=True)
class Train:
    run: Annotated[RunConfig, tyro.conf.arg(name="")]
    structure: str = "the recipe's"
    """single, m2, some, some-5dnns, 5heads, 5heads-lr5, dnn5, 5dnns, 5dnns-m2, or with other numbers."""
    method: str = "the recipe's"
    """Base method, with the values published for the benchmark, else its defaults."""
    sigma: float = 0.0
    """Noise of training; 0: the recipe's."""
    root: str | None = None
    """Where the data set lies; short for --data.root."""
    members: int = 1
    """Train so many networks apart, from as many seeds, and join them."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
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
    with ranks.quiet():
        _train(arguments)


def _train(arguments: list[str]) -> None:
    arguments = short_help(arguments, "train RECIPE", DESCRIPTION, COMMON)
    name, rest = first_argument(arguments, "a recipe", "see `smoothheads info recipes`")
    chosen, rest = _composed(name or "digits-some", rest)
    args = parse(
        Train(run=chosen.config, members=chosen.members),
        rest,
        prog=f"train {name or 'RECIPE'}",
        description=DESCRIPTION,
    )
    if ranks.restarted() and not args.resume:
        raise ConfigError("--resume with torchrun --max-restarts", "none", "add it; it also begins new runs")
    out = args.out or Path("runs") / chosen.name

    from smoothheads.runs.ensemble import train_members
    from smoothheads.runs.train import train_run

    with Progress("train") as progress:
        show = _Show(progress)
        settings: dict[str, Any] = {
            "resume": args.resume,
            "on_plan": show.plan,
            "on_event": show.event,
            "on_prepare": progress.prepare,
            "save_seconds": args.save_seconds,
            "tensorboard": args.tensorboard,
            "workers": args.workers,
        }
        if args.members > 1:
            count = args.members
            checkpoint = train_members(
                args.run, out, count, on_member=lambda k: say(f"network {k} of {count}"), **settings
            )
        else:
            checkpoint = train_run(args.run, out, **settings)
    if ranks.launched()[0] > 0:
        return
    metrics = load_json(checkpoint / "manifest.json").get("metrics", {})
    if args.json:
        print_json({"checkpoint": str(checkpoint), "metrics": metrics})
        return
    if accuracy := metrics.get("validation", {}).get("accuracy"):
        say(f"{accuracy:.1%} of the held-out images are right under noise, one draw each")
    easy = metrics.get("easy_fraction", ())
    if len(easy) > 1 and args.run.objective.teaching.weights in ("soft", "hard"):
        _tell_few_easy(sum(easy) / len(easy))
    say(f"next: smoothheads certify {out}")
    print(checkpoint)


def _tell_few_easy(easy: float) -> None:
    """Images that are not easy count less and less; it may pay in ACR, and may cost whole classes."""
    if easy < FEW_EASY:
        say(
            f"teaching called only {easy:.0%} of the training images easy (loss at most lambda), and the "
            "others count less: smoothheads report shows of how many classes anything is certified; a higher "
            "--objective.teaching.lambda-last calls more of them easy"
        )


def _composed(name: str, arguments: list[str]) -> tuple[cookbook.Recipe, list[str]]:
    """The recipe, or an earlier run's config.json, with structure, method and sigma from the arguments."""
    structure, rest = take_option(arguments, "--structure")
    method, rest = take_option(rest, "--method")
    sigma, rest = take_option(rest, "--sigma")
    data_name, rest = take_option(rest, "--data.name")
    root, rest = take_option(rest, "--root")
    number = None if sigma is None else _number("--sigma", sigma)
    if Path(name).suffix != ".json":
        chosen = cookbook.get(name, structure=structure, method=method, sigma=number)
    else:
        chosen = _earlier(Path(name), structure, method, number)
    data = chosen.config.data if data_name is None else chosen.config.data.another(data_name)
    data = data if root is None else replace(data, root=root)
    return replace(chosen, config=replace(chosen.config, data=data)), rest


def _earlier(path: Path, structure: str | None, method: str | None, sigma: float | None) -> cookbook.Recipe:
    if structure is not None:
        raise ConfigError("a recipe's name with --structure", str(path), "change the fields of model instead")
    data = load_json(path)
    config = from_dict(RunConfig, data.get("run", data))
    if method is not None:
        config = replace(config, objective=replace(config.objective, method=METHODS.get(method)()))
    if sigma is not None:
        config = replace(config, train=replace(config.train, sigma=sigma))
    return cookbook.Recipe(name=path.stem, summary="", source=str(path), config=config)


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ConfigError(f"a number after {option}", repr(text), f"for example {option} 0.5") from None


class _Show:
    """Plan, steps and epochs as lines and a bar."""

    def __init__(self, progress: Progress) -> None:
        self.progress, self.accuracy = progress, ""

    def plan(self, plan: Plan) -> None:
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
        elif "validation" in event.metrics:
            held_out = event.metrics["validation"]
            if "accuracy" in held_out:
                self.accuracy = f", accuracy {held_out['accuracy']:.1%}"
            else:
                self.accuracy = f", PSNR {held_out['psnr']['0.25']:.1f} dB at sigma 0.25"
