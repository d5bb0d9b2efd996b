"""smoothheads predict CHECKPOINT|EXPORT IMAGE..."""

from __future__ import annotations

import re
from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from smoothheads.certify.config import CertifyConfig
from smoothheads.cli.common import first_argument, parse, print_json, say, take_option
from smoothheads.cli.progress import Progress
from smoothheads.errors import ConfigError, shown

if TYPE_CHECKING:
    from smoothheads.certify.certifier import Certifier
    from smoothheads.data import Input
    from smoothheads.runs.models import Model
    from smoothheads.runs.predict import Answer, AnswerFile, Question

DESCRIPTION = """Classify pictures with the smoothed classifier: with probability 1 - alpha or more the answer
is the smoothed classifier's, or it is an abstention. With --radius each answer has a certified radius; with
--radius R sampling stops as soon as R is shown or hopeless; with --seconds S the answer is what holds then.

CHECKPOINT comes first: a checkpoint folder, the folder of a training run, or what `smoothheads export` wrote.
An export brings its settings along and refuses those that would make another function than the certified
one. Pictures are cut and averaged as in training; none is resized to fit unless --resize says so.

The noise is keyed by a secret that is drawn for every run, so that nobody can search for a picture whose
noise is unlucky. The exit code is 0 if every picture got an answer, abstentions included, and 2 if some could
not be read."""
FEW = 5  # pictures that need no progress bar
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
    stop_after: Annotated[float | None, tyro.conf.arg(name="stop-after")] = None
    """What --seconds S means: say what holds after so many seconds, for every picture."""
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
    certify = CertifyConfig(sigma=0.25, n=1000) if model is None else model.prediction_config
    seconds, rest = take_option(rest, "--seconds")  # this command's own, not the budget's
    rest += [] if seconds is None else ["--stop-after", seconds]
    if certify.budget == "anytime":  # --seconds and --radius R are this command's own
        certify = certify.changed(budget="fixed")
    args = parse(
        Predict(images=(), certify=certify),
        _with_radius(rest),
        prog=f"predict {name or 'CHECKPOINT'}",
        description=DESCRIPTION,
    )
    if not args.images:
        raise ConfigError("No picture is named: give files, folders, .npz or .parquet after the network.")
    if args.certify.seed is not None:
        say(KNOWN_SEED)

    from smoothheads.data import Frame, find_inputs
    from smoothheads.runs.predict import AnswerFile, Question, function_facts

    assert model is not None, "only the help does without one"
    smoothed = model.certifier(args.certify, images=len(args.images))
    for note in smoothed.notes:
        say(note)
    data = replace(model.data, root=args.root or model.data.root)
    inputs = list(find_inputs(args.images, Frame(smoothed.info, data, args.resize)))
    question = Question(radius=args.radius, at_least=args.at_least, seconds=args.stop_after)
    facts = function_facts(smoothed, model.weights, question)
    with AnswerFile.open(args.out, facts) if args.out else nullcontext() as file:
        counts = _answer(smoothed, inputs, question, facts, file, as_json=args.json)
    if counts.total() > counts["error"]:
        answered = counts.total() - counts["error"]
        earlier = f" ({counts['earlier']} before)" if counts["earlier"] else ""
        failed = f"; {counts['error']} could not be read" if counts["error"] else ""
        say(f"{answered - counts['earlier']} answers{earlier}, {counts['abstain']} abstentions{failed}")
        if args.out:
            say(f"answers: {args.out}")
        config, n = smoothed.config, smoothed.budget.max_samples
        say(f"sigma {config.sigma:g}, n {n}, alpha {config.alpha:g}; {smoothed.noise.scope}")
    return 2 if counts["error"] else 0


def _opened(name: str) -> Model:
    from smoothheads.runs.models import open_model

    return open_model(name)


def _answer(
    smoothed: Certifier,
    inputs: list[Input],
    question: Question,
    facts: Answer,
    file: AnswerFile | None,
    *,
    as_json: bool,
) -> Counter[str]:
    """Answers every picture, writes and prints the answers, and counts classes, errors and earlier
    answers."""
    from smoothheads.runs.predict import answer_pictures

    counts: Counter[str] = Counter()
    answers: list[Answer] = []
    with Progress("predict") if len(inputs) > FEW else nullcontext() as progress:
        if progress:
            progress.begin(len(inputs), 0)
        for answer in answer_pictures(smoothed, iter(inputs), question, file.answered if file else {}):
            kind = "earlier" if answer is None else "error" if "error" in answer else str(answer["class"])
            counts[kind] += 1
            if progress:
                progress.add(1, answer["image"] if answer else "")
            if answer is None:
                continue
            if file:  # before anything is printed: `| head` closes the pipe
                file.write(answer)
            if kind == "error":
                say(f"smoothheads: {answer['error']}")
            if as_json:
                answers.append(answer if kind == "error" else answer | facts)
            elif not file and kind != "error":
                certified = f"  {answer['norm']} radius {answer['radius']:g}" if "radius" in answer else ""
                share = f"{answer['share']:.1%} of the samples"
                print(f"{shown(answer['image'])}: {answer['class']}  ({share}){certified}", flush=True)
    if as_json:
        print_json(answers)
    return counts


def _with_radius(words: list[str]) -> list[str]:
    """Replaces --radius R by the two options that it stands for."""
    found: list[str] = []
    for position, word in enumerate(words):
        number = re.fullmatch(r"[-+.\deE]*\d[-+.\deE]*|inf", " ".join(words[position + 1 : position + 2]))
        found += ["--radius", "--radius-at-least"] if word == "--radius" and number else [word]
    return found
