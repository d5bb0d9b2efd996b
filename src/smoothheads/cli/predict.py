"""smoothheads predict CHECKPOINT IMAGE..."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from smoothheads.cli.certify import trained_config
from smoothheads.cli.common import first_argument, parse, print_json, say
from smoothheads.config import CertifyConfig

DESCRIPTION = """Classify image files with the smoothed classifier: with probability at least 1 - alpha the
answer is the smoothed classifier's, or it is an abstention. With --radius each answer has a certified radius.

CHECKPOINT comes first: a checkpoint folder or the folder of a training run. The same image always gets the
same answer, because its noise is keyed by its content."""


@dataclass(frozen=True, kw_only=True)
class Predict:
    images: tyro.conf.Positional[tuple[Path, ...]]
    """Image files of the size that the network takes."""
    certify: Annotated[CertifyConfig, tyro.conf.arg(name="")]
    radius: bool = False
    """Certify a radius too (costs n0 more noisy copies)."""
    json: bool = False
    """Print the answers as JSON."""


def main(arguments: list[str]) -> None:
    name, rest = first_argument(arguments, "a checkpoint", "give the folder that `smoothheads train` wrote")
    sigma = trained_config(Path(name)).train.sigma if name else 0.25
    default = Predict(images=(), certify=CertifyConfig(sigma=sigma, n=1000))
    args = parse(
        Predict, rest, default=default, prog=f"predict {name or 'CHECKPOINT'}", description=DESCRIPTION
    )

    from smoothheads.certify.smoothed import Smoothed
    from smoothheads.data import load, read_image
    from smoothheads.runs.layout import engines_folder, open_checkpoint

    folder = Path(name or "")
    ready = open_checkpoint(folder)
    smoothed = Smoothed(
        ready.model,
        ready.info,
        args.certify,
        artefacts=engines_folder(folder),
        training=lambda: load(ready.config.data).train,
        images=len(args.images),
    )
    for note in smoothed.notes:
        say(note)
    answers = [_answer(smoothed, read_image(path, ready.info), path, args.radius) for path in args.images]
    if args.json:
        print_json(answers)
        return
    for answer in answers:
        certified = f"  {answer['norm']} radius {answer['radius']}" if args.radius else ""
        print(f"{answer['image']}: {answer['class']}  ({answer['share']:.1%} of the copies){certified}")
    settings = args.certify
    say(f"sigma {settings.sigma:g}, n {settings.n}, alpha {settings.alpha:g}; {smoothed.engine.noise.scope}")


def _answer(smoothed: Any, image: Any, path: Path, with_radius: bool) -> dict[str, Any]:
    from smoothheads.certify.radius import format_radius
    from smoothheads.types import ABSTAIN, Phase

    if with_radius:
        certificate, sampler = smoothed.certify_image(image)
        prediction, votes = certificate.prediction, sampler.table(Phase.ESTIMATION).of(smoothed.config.rule)
    else:
        prediction, votes = smoothed.predict(image)
    name = "abstain" if prediction == ABSTAIN else smoothed.info.class_names[prediction]
    answer = {
        "image": str(path),
        "class": name,
        "prediction": int(prediction),
        "share": float(votes.max() / votes.sum()),
        "n": int(votes.sum()),
        "alpha": smoothed.config.alpha,
        "sigma": smoothed.config.sigma,
    }
    radius = (
        {"radius": format_radius(certificate.radius), "norm": smoothed.theorem.norm} if with_radius else {}
    )
    return answer | radius
