"""smoothheads predict CHECKPOINT|EXPORT IMAGE..."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from smoothheads.cli.certify import trained_config
from smoothheads.cli.common import first_argument, parse, print_json, say
from smoothheads.config import CertifyConfig

if TYPE_CHECKING:
    from smoothheads.certify.smoothed import Smoothed
    from smoothheads.runs.exported import Exported

DESCRIPTION = """Classify image files with the smoothed classifier: with probability at least 1 - alpha the
answer is the smoothed classifier's, or it is an abstention. With --radius each answer has a certified radius.

CHECKPOINT comes first: a checkpoint folder, the folder of a training run, or what `smoothheads export` wrote.
An export brings its settings along and refuses those that would make another function than the certified
one. The same image always gets the same answer, because its noise is keyed by its content."""


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
    remedy = "give the folder that `smoothheads train` or `export` wrote"
    name, rest = first_argument(arguments, "a checkpoint", remedy)
    folder = Path(name or "")
    export = _export(folder) if name else None
    if export:
        certify = export.config
    else:
        certify = CertifyConfig(sigma=trained_config(folder).train.sigma if name else 0.25, n=1000)
    default = Predict(images=(), certify=certify)
    args = parse(
        Predict, rest, default=default, prog=f"predict {name or 'CHECKPOINT'}", description=DESCRIPTION
    )

    from smoothheads.data import read_image

    smoothed = export.smoothed(**asdict(args.certify)) if export else _smoothed(folder, args)
    for note in smoothed.notes:
        say(note)
    answers = [_answer(smoothed, read_image(path, smoothed.info), path, args.radius) for path in args.images]
    if args.json:
        print_json(answers)
        return
    for answer in answers:
        certified = f"  {answer['norm']} radius {answer['radius']}" if args.radius else ""
        print(f"{answer['image']}: {answer['class']}  ({answer['share']:.1%} of the copies){certified}")
    settings = args.certify
    say(f"sigma {settings.sigma:g}, n {settings.n}, alpha {settings.alpha:g}; {smoothed.engine.noise.scope}")


def _export(folder: Path) -> Exported | None:
    from smoothheads.runs.exported import Exported, is_export

    return Exported.open(folder) if is_export(folder) else None


def _smoothed(folder: Path, args: Predict) -> Smoothed:
    from smoothheads.certify.smoothed import Smoothed
    from smoothheads.data import load
    from smoothheads.runs.layout import engines_folder, open_checkpoint

    ready = open_checkpoint(folder)
    return Smoothed(
        ready.model,
        ready.info,
        args.certify,
        artefacts=engines_folder(folder),
        training=lambda: load(ready.config.data).train,
        images=len(args.images),
    )


def _answer(smoothed: Smoothed, image: Any, path: Path, with_radius: bool) -> dict[str, Any]:
    from smoothheads.certify.radius import format_radius
    from smoothheads.types import ABSTAIN, Phase

    if with_radius:
        certificate, sampler = smoothed.certify_image(image)
        counted = sampler.table(Phase.ESTIMATION)
        if not counted.n:  # a budget may give up after its first look
            counted = sampler.table(Phase.SELECTION) + sampler.table(Phase.PILOT)
        prediction, votes = certificate.prediction, counted.of(smoothed.config.rule)
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
