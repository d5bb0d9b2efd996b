"""smoothheads predict CHECKPOINT|EXPORT IMAGE..."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from smoothheads.certify.config import CertifyConfig
from smoothheads.cli.common import first_argument, parse, print_json, say, take_components, take_option
from smoothheads.cli.progress import Progress
from smoothheads.errors import ConfigError, shown

if TYPE_CHECKING:
    from smoothheads.certify.certifier import Certifier
    from smoothheads.data import Frame
    from smoothheads.runs.models import Model
    from smoothheads.runs.predict import Answer, AnswerFile

DESCRIPTION = """Classify pictures with the smoothed classifier: with probability 1 - alpha or more the answer
is the smoothed classifier's, or it is an abstention. With --radius each answer has a certified radius; with
--radius R sampling stops as soon as R is shown or hopeless; with --seconds S the answer is what holds then.

CHECKPOINT comes first: a checkpoint folder, the folder of a training run, or what `smoothheads export` wrote.
An export brings its settings along and refuses those that would make another function than the certified
one. Pictures are cut and averaged as in training; none is resized to fit unless --resize says so.

The noise is keyed by a secret that is drawn for every run, so that nobody can search for a picture whose
noise is unlucky. The exit code is 0 if every picture got an answer, abstentions included, and 2 if some could
not be read."""
FEW = 5  # pictures that need no bar
KNOWN_SEED = (
    "note: with --seed the answers can be repeated, and whoever knows the seed can search for a picture "
    "whose noise is unlucky"
)


@dataclass(frozen=True, kw_only=True)
class Predict:
    images: tyro.conf.Positional[tuple[str, ...]]
    """Image files, folders, patterns like 'photos/*.png', .npz files with `images`, .parquet files;
    test:7 is test image 7 of the data set that the network was trained on."""
    certify: Annotated[CertifyConfig, tyro.conf.arg(name=""), tyro.conf.OmitArgPrefixes]
    radius: bool = False
    """Certify a radius too (costs n0 more samples)."""
    at_least: Annotated[float | None, tyro.conf.arg(name="radius-at-least")] = None
    """What --radius R means: stop as soon as R is shown or hopeless; where it is not shown, abstain."""
    seconds: float | None = None
    """Say what holds after so many seconds, for every picture."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training; only test:7 needs it."""
    resize: bool = False
    """Resize pictures of another size: the shorter side to fit, then the centre."""
    out: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Write the answers to this .jsonl or .csv file as they come; run again to go on."""
    json: bool = False
    """Print the answers as JSON."""


def main(arguments: list[str]) -> int:
    remedy = "give the folder that `smoothheads train` or `export` wrote"
    name, rest = first_argument(arguments, "a checkpoint", remedy)
    model = _opened(name) if name else None
    certify = CertifyConfig.of(0.25, n=1000) if model is None else model.prediction_config
    seconds, rest = take_option(rest, "--seconds")  # this command's own, not the budget's
    certify, rest = take_components(rest, certify)
    rest += [] if seconds is None else ["--seconds", seconds]
    if certify.budget.name == "anytime":  # --seconds and --radius R are this command's own
        certify = certify.changed(budget="fixed")
    args = parse(
        Predict(images=(), certify=certify),
        _with_radius(rest),
        prog=f"predict {name or 'CHECKPOINT'}",
        description=DESCRIPTION,
    )
    if not args.images:
        raise ConfigError(
            "at least one image", "none", "name files, folders, .npz or .parquet after the rest"
        )
    if args.certify.seed is not None:
        say(KNOWN_SEED)

    from smoothheads.data import Frame

    assert model is not None, "only the help does without one"
    smoothed = model.certifier(args.certify, images=len(args.images))
    for note in smoothed.notes:
        say(note)
    data = replace(model.data, root=args.root or model.data.root)
    return _predict(smoothed, args, Frame(smoothed.info, data, args.resize))


def _opened(name: str) -> Model:
    from smoothheads.runs.models import open_model

    return open_model(name)


def _predict(smoothed: Certifier, args: Predict, frame: Frame) -> int:
    from smoothheads.data import find_inputs
    from smoothheads.runs.predict import AnswerFile, Asked, answers

    asked = Asked(radius=args.radius, at_least=args.at_least, seconds=args.seconds)
    inputs = list(find_inputs(args.images, frame))
    file = AnswerFile(args.out) if args.out else None
    done = file.done if file else set()
    kept: list[Answer] = []
    counts: Counter[str] = Counter()
    with Progress("predict") if len(inputs) > FEW else nullcontext() as progress:
        if progress:
            progress.begin(len(inputs), len(done))
        left = (each for each in inputs if each.name not in done)
        for answer in answers(smoothed, left, asked):
            counts["error" if "error" in answer else str(answer["class"])] += 1
            if progress:
                progress.add(1, answer["image"])
            _show(answer, args.json, file, kept)
    if args.json:
        print_json(kept)
    if done or counts.total() > counts["error"]:
        _sum_up(smoothed, args, counts, len(done))
    return 2 if counts["error"] else 0


def _show(answer: Answer, as_json: bool, file: AnswerFile | None, kept: list[Answer]) -> None:
    if file:
        file.write(answer)
    if "error" in answer:
        say(f"smoothheads: {answer['error']}")
    if as_json:
        kept.append(answer)
    elif not file and "error" not in answer:
        certified = f"  {answer['norm']} radius {answer['radius']:g}" if "radius" in answer else ""
        name, share = shown(answer["image"]), f"{answer['share']:.1%} of the samples"
        print(f"{name}: {answer['class']}  ({share}){certified}", flush=True)


def _sum_up(smoothed: Certifier, args: Predict, counts: Counter[str], before: int) -> None:
    answered = counts.total() - counts["error"]
    earlier = f" ({before} before)" if before else ""
    failed = f"; {counts['error']} could not be read" if counts["error"] else ""
    say(f"{answered} answers{earlier}, {counts['abstain']} abstentions{failed}")
    if args.out:
        say(f"answers: {args.out}")
    settings, n = args.certify, args.certify.budget.max_samples
    say(f"sigma {settings.sigma:g}, n {n}, alpha {settings.alpha:g}; {smoothed.engine.noise.scope}")


def _with_radius(words: list[str]) -> list[str]:
    """--radius R as the two options that it stands for."""
    out: list[str] = []
    for position, word in enumerate(words):
        before = words[position - 1] if position else ""
        out.append("--radius-at-least" if word == "--radius" and _is_number(words[position + 1 :]) else word)
        if before == "--radius" and _is_number([word]):
            out.append("--radius")
    return out


def _is_number(words: list[str]) -> bool:
    try:
        return bool(words) and float(words[0]) == float(words[0])
    except ValueError:
        return False
