"""A certified run as a folder to ship: exactly the function that was certified, with the evidence."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from smoothheads.certify.engines.conversion import FACTS as CONVERSION_FACTS
from smoothheads.checkpoint import WEIGHTS, checkpoint_folder, verified_manifest
from smoothheads.errors import CheckpointError, LedgerError, StorageError
from smoothheads.files import new_folder, reserve, write_atomic, write_json
from smoothheads.results.compare import summarize
from smoothheads.results.manifest import Manifest
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.runs import models
from smoothheads.runs.models import (
    CHECKPOINT,
    CHECKPOINT_FILES,
    EXTRAS,
    LEDGER,
    LEDGER_FILES,
    Export,
    open_checkpoint,
)

README = """\
A smoothed image classifier with certificates
=============================================

What was certified
------------------
{images} test images of the data set {data}: sigma {sigma:g} ({noise} noise), n {n}, alpha {alpha:g},
aggregation {aggregation}, engine {engine}, {precision}.

  right and not abstained   {accuracy:.1%}
  average certified radius  {acr:.3f} ({norm})
{certified}

export.json has these numbers, ledger/ every certificate (`smoothheads report FOLDER/ledger`) and, in its
manifest, every setting and the versions of the software.

What is guaranteed
------------------
The smoothed classifier answers with the class that this network gives most often under the noise. For each
image on its own, with probability at least 1 - alpha over the sampled noise: `predict` abstains or gives that
answer; with --radius, no change of the image of {norm} norm below the radius alters it.
Scope: {scope}.

That is about exactly this network, engine, precision and noise, which is why `predict` uses what lies here
and refuses other settings. It does not say that the answer is right, and nothing about the network without
noise. Other versions of the software or another processor may round differently; `predict` names versions
that differ.

How to use it
-------------
It needs smoothheads {version}{extra}, and no training data.

  smoothheads predict FOLDER image.png             a class, or an abstention
  smoothheads predict FOLDER image.png --radius    and a certified radius

In Python:

  from pathlib import Path
  import smoothheads as sh
  from smoothheads.data import read_image

  smoothed = sh.from_pretrained("FOLDER")
  image = read_image(Path("image.png"), smoothed.info)
  prediction, votes = smoothed.predict(image)      # sh.ABSTAIN, or a place in smoothed.info.class_names
  certified = smoothed.certify_image(image)        # certified.prediction, certified.radius

Both check every file against SHA256SUMS first; without smoothheads: sha256sum -c SHA256SUMS
"""


def export_run(ledger: Path | str, out: Path | str, *, checkpoint: Path | str | None = None) -> Path:
    """Writes the folder `out`: completely or not at all, and the same bytes every time.

    Raises LedgerError for a ledger that is not finished or of other weights, CheckpointError where the
    checkpoint or the converted network that was certified is missing or has changed since.

    Args:
        ledger: The folder of the ledger.
        out: The folder to write, which is new or empty.
        checkpoint: The network, if it is not above the ledger, where `certify` puts the ledger.
    """
    ledger, out = Path(ledger), Path(out)
    reserve(out)
    log = read_log(ledger)
    manifest = _finished(log)
    place = Path(checkpoint or _checkpoint_above(ledger))
    network = checkpoint_folder(place)
    models.check_weights(manifest, verified_manifest(network)["sha256"][WEIGHTS])
    # Every file by the name that it gets: the checkpoint, the ledger, and what the engine converted.
    sources = {f"{CHECKPOINT}/{name}": network / name for name in CHECKPOINT_FILES}
    sources |= {f"{LEDGER}/{name}": ledger / name for name in LEDGER_FILES}
    for name, converted in models.find_converted(manifest, ledger, place).items():
        files = (*converted.files, CONVERSION_FACTS)
        sources |= {f"{name}/{file}": converted.folder / file for file in files}
    facts = summary(log, manifest)
    with new_folder(out) as partial:
        copy_files(sources, partial)
        write_json(partial / models.FACTS, {"format": models.FORMAT, "summary": facts})
        write_atomic(partial / models.README, _readme(facts, manifest))
        write_atomic(partial / models.SUMS, models.checksums(partial))
        # Before anybody sees the folder: whoever receives it will make the same checks.
        Export.open(partial)
    return out


def copy_files(sources: Mapping[str, Path], folder: Path) -> None:
    """Copies each file under its name in the folder."""
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)


def export_onnx(place: Path | str, out: Path | str, *, checkpoint: Path | str | None = None) -> Path:
    """Writes a network as the one file `out`, which must be new.

    Args:
        place: A checkpoint, a training run or a ledger.
        out: The file to write.
        checkpoint: The network of a ledger that lies elsewhere.
    """
    from smoothheads.certify.engines import onnx

    place, out = Path(place), Path(out)
    if out.exists():
        raise StorageError(f"{out} exists already: choose another --out.")
    is_network = (checkpoint_folder(place) / WEIGHTS).is_file()
    loaded = open_checkpoint(checkpoint or (place if is_network else _checkpoint_above(place)))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "model.onnx"
        onnx.convert(loaded.model, loaded.info.shape, made)
        write_atomic(out, made.read_bytes())
    return out


def summary(log: Results, manifest: Manifest) -> dict[str, Any]:
    """Returns what was certified and the results; accuracies are fractions of all images."""
    found, config = summarize(log), models.certified_settings(manifest)

    def estimate(value: float, error: float) -> dict[str, float | None]:
        return {"value": value, "standard_error": None if math.isnan(error) else error}

    columns = zip(found.radii, found.certified, strict=True)
    return {
        "data": manifest.data.name if manifest.data else None,
        "images": len(log),
        "norm": log.norm,
        "scope": manifest.scope,
        "sigma": config.sigma,
        "noise": config.noise,
        "n0": manifest.n0,
        "n": manifest.n,
        "alpha": config.alpha,
        "budget": config.budget,
        "aggregation": config.aggregation,
        "engine": config.engine,
        "precision": config.precision,
        "accuracy": found.accuracy,
        "abstained": found.abstained.value,
        "acr": estimate(*found.acr),
        "certified": [{"radius": radius, **estimate(*share)} for radius, share in columns],
    }


def _finished(log: Results) -> Manifest:
    if log.manifest is None:
        raise LedgerError(f"{log.name} is no ledger of `smoothheads certify`: certify the network first.")
    left = len(log.manifest.indices or ()) - len(log)
    if left > 0:
        raise LedgerError(
            f"The ledger {log.name} lacks {left} of {len(log) + left} images: run its `certify` again, or "
            "`merge` the shards."
        )
    return log.manifest


def _checkpoint_above(ledger: Path) -> Path:
    folder = ledger.absolute().parent
    if not (checkpoint_folder(folder) / WEIGHTS).is_file():
        raise CheckpointError(f"{folder} has no checkpoint of this ledger: name it with --checkpoint.")
    return folder


def _readme(facts: dict[str, Any], manifest: Manifest) -> str:
    lines = [f"  certified at radius {each['radius']:<5g} {each['value']:.1%}" for each in facts["certified"]]
    return README.format(
        **facts | {"acr": facts["acr"]["value"], "certified": "\n".join(lines)},
        version=manifest.versions.get("smoothheads"),
        extra=f" with its extra {EXTRAS[facts['engine']]}" if facts["engine"] in EXTRAS else "",
    )
