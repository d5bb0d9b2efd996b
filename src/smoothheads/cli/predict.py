"""smoothheads predict CHECKPOINT|EXPORT IMAGE..."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, Final, Self

import tyro

from smoothheads.certify.config import CertifyConfig
from smoothheads.cli.common import OutFile, ResultCommand, first_argument, parse, print_json, say
from smoothheads.cli.progress import Progress
from smoothheads.errors import ConfigError, shown
from smoothheads.hub import local

if TYPE_CHECKING:
    from smoothheads.runs.models import Model
    from smoothheads.runs.predict import Answer, AnswerFile

FEW: Final = 5  # pictures that need no progress bar
KNOWN_SEED: Final = (
    "note: with --seed predictions can be repeated, and somebody who knows the seed can search for an image "
    "whose noise is unlucky"
)


@dataclass(frozen=True, kw_only=True)
class PredictCommand(ResultCommand):
    """Classify pictures with the smoothed classifier: with probability 1 - alpha or more the answer is the
    smoothed classifier's, or it is an abstention. With --radius each answer has a certified radius.

    CHECKPOINT comes first: a checkpoint folder, the folder of a training run, or what `smoothheads export`
    wrote. An export brings its settings along and refuses those that would make another function than the
    certified one. Pictures are cut and averaged as in training; none is resized to fit unless --resize says
    so.

    The noise is keyed by a secret that is drawn for every run, so that nobody can search for a picture whose
    noise is unlucky. The exit code is 0 if every picture got an answer, abstentions included, and 2 if some
    could not be read."""

    images: tyro.conf.Positional[tuple[str, ...]]
    """Image files, folders, patterns like 'photos/*.png', .npz files with `images`, .parquet files; test:7 is
    test image 7 of the data set that the network was trained on."""
    certify: Annotated[CertifyConfig, tyro.conf.arg(name=""), tyro.conf.OmitArgPrefixes]
    opened: tyro.conf.Fixed[Callable[[], Any]] = lambda: None  # tyro would look into a network itself
    radius: bool = False
    """Certify a radius too (costs n0 more samples)."""
    at_least: Annotated[float | None, tyro.conf.arg(name="radius-at-least", metavar="R")] = None
    """Stop as soon as the radius R is certified or hopeless; where it is not certified, abstain."""
    stop_after: Annotated[float | None, tyro.conf.arg(metavar="S")] = None
    """Stop after S seconds for every picture, with the radius that is certified then."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training; only test:7 needs it."""
    resize: bool = False
    """Resize pictures of another size: the shorter side to fit, then the centre."""
    out: OutFile = None
    """Write the answers to this .jsonl or .csv file as they come; run again to go on."""

    @classmethod
    def read(cls, arguments: list[str]) -> Self:
        remedy = "give the folder that `smoothheads train` or `export` wrote"
        name, rest = first_argument(arguments, "a checkpoint", remedy)
        certify, model = CertifyConfig(sigma=0.25, n=1000), None
        if name:
            from smoothheads.runs.models import open_model

            model = open_model(local(name))
            certify = model.prediction_config
        if certify.budget == "anytime":  # this command has seconds and a target of its own
            certify = certify.changed(budget="fixed")
        default = cls(images=(), certify=certify, opened=lambda: model)
        return parse(cls, rest, default=default, prog=f"predict {name or 'CHECKPOINT'}")

    def run(self) -> int:
        if not self.images:
            raise ConfigError("No picture is named: give files, folders, .npz or .parquet after the network.")
        if self.certify.seed is not None:
            say(KNOWN_SEED)

        from smoothheads.data.inputs import Frame, find_inputs
        from smoothheads.runs.predict import AnswerFile, Question, answer_pictures, function_facts

        model: Model = self.opened()
        # An export has an engine and a precision of its own; a checkpoint takes those of the options.
        smoothed = model.certifier(self.certify)
        for note in smoothed.notes:
            say(note)
        data = replace(model.data, root=self.root or model.data.root)
        inputs = list(find_inputs(self.images, Frame(smoothed.info, data, self.resize)))
        # A file of answers states the function and the question, and is never mixed.
        question = Question(
            radius=self.radius or self.at_least is not None,
            at_least=self.at_least,
            seconds=self.stop_after,
        )
        facts = function_facts(smoothed, model.weights, question)
        # Each answer is written or printed before the next picture is looked at.
        counts: Counter[str] = Counter()
        answers: list[Answer] = []
        with (
            AnswerFile.open(self.out, facts) if self.out else nullcontext() as file,
            Progress("predict") if len(inputs) > FEW else nullcontext() as progress,
        ):
            if progress:
                progress.begin(len(inputs), 0)
            earlier = file.answered if file else {}
            for answer in answer_pictures(smoothed, iter(inputs), question, earlier):
                if progress:
                    progress.add(1, answer["image"] if answer else "")
                if answer is None:
                    counts["earlier"] += 1
                    continue
                counts["error" if "error" in answer else str(answer["class"])] += 1
                self._show(answer, file)
                answers.append(answer if "error" in answer else answer | facts)
        if self.json:
            print_json(answers)
        if counts.total() > counts["error"]:
            told = {"abstain": "abstained", "error": "could not be read", "earlier": "done before"}
            parts = [f"{counts.total() - sum(counts[key] for key in told)} classified"]
            parts += [f"{counts[key]} {words}" for key, words in told.items() if counts[key]]
            say(", ".join(parts) + (f"; written to {self.out}" if self.out else ""))
            config, n = smoothed.config, smoothed.budget.max_samples
            say(f"sigma {config.sigma:g}, n {n}, alpha {config.alpha:g}; {smoothed.noise.scope}")
        return 2 if counts["error"] else 0

    def _show(self, answer: Answer, file: AnswerFile | None) -> None:
        """Writes an answer to the file if there is one, and else prints it; says an error."""
        # File before text: a reader of the text that goes away, as `head` does, must not cost the file.
        if file:
            file.write(answer)
        if "error" in answer:
            say(f"smoothheads: {answer['error']}")
        elif not (self.json or file):
            certified = f"  {answer['norm']} radius {answer['radius']:g}" if "radius" in answer else ""
            share = f"{answer['share']:.1%} of the samples"
            print(f"{shown(answer['image'])}: {answer['class']}  ({share}){certified}", flush=True)
