"""A certified run as a folder to ship: exactly the function that was certified, with the evidence; and its
upload to the Hugging Face Hub.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from smoothheads import hub
from smoothheads.certify.engines import conversion
from smoothheads.checkpoint import WEIGHTS, checkpoint_folder, trained_config, verified_manifest
from smoothheads.errors import CheckpointError, LedgerError, StorageError
from smoothheads.files import new_folder, reserve, write_atomic, write_json
from smoothheads.report import words
from smoothheads.results.compare import summarize, summarize_classes
from smoothheads.results.manifest import Manifest
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.runs import models
from smoothheads.runs.models import (
    CHECKPOINT,
    CHECKPOINT_FILES,
    LEDGER,
    LEDGER_FILES,
    SUMS,
    Export,
    is_export,
    open_checkpoint,
)

CARD: Final = "README.md"

BODY = """\
# {name}

{lead}

## How to use it

{use} It needs {needs}, and no training data. Every file is checked
against its hash, and no code that lies here is run.
"""

CLASSIFIER = """\
```python
import smoothheads as sh

smoothed = sh.from_pretrained("{place}")
image = "image.png"  # or grid integers [C, H, W], or a picture of Pillow
print(smoothed.predict(image).prediction)  # -1 is an abstention
result = smoothed.certify_image(image)
print(result.prediction, result.radius)
```

or `smoothheads predict {place} image.png --radius`."""

DENOISER = """\
```python
import smoothheads as sh

denoiser = sh.load_checkpoint("{place}").model.heads[0]
network = sh.denoised(classifier, denoiser, sigma=0.25)  # certify this instead of the classifier
```

It is not a classifier."""

CERTIFIED = """
## What was certified

{images} test images of {data}: sigma {sigma:g} ({noise} noise), n {n}, alpha {alpha:g}, aggregation
{aggregation}, engine {engine}, {precision}. Correct and not abstained: {accuracy:.1%}. Abstained:
{abstained:.1%}. Average certified radius: {acr:.3f}. Classes with a certificate: {served} of {present};
of the worst class the average certified radius is {worst:.3f}.

| {norm} radius | certified accuracy |
|---:|---:|
{certified}

Every certificate with its votes is in `ledger/`, and its manifest has every setting and the versions of the
software; `smoothheads audit` checks them. Without smoothheads: `sha256sum -c SHA256SUMS`.

## What is guaranteed

{guaranteed}

## What is not

{not_guaranteed}

{scope} Other versions of the software or another processor may round differently; `predict` names versions
that differ.
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
    # The ledger must be finished, and about exactly these weights.
    log = read_log(ledger)
    manifest = log.manifest
    if manifest is None:
        raise LedgerError(f"{log.name} is no ledger of `smoothheads certify`: certify the network first.")
    if (left := len(manifest.indices or ()) - len(log)) > 0:
        raise LedgerError(
            f"The ledger {log.name} lacks {left} of {len(log) + left} images: run its `certify` again, or "
            "`merge` the shards."
        )
    place = Path(checkpoint or _checkpoint_above(ledger))
    network = checkpoint_folder(place)
    models.check_weights(manifest, verified_manifest(network)["sha256"][WEIGHTS])
    # Every file by the name that it gets: the checkpoint, the ledger, and what the engine converted.
    sources = {f"{CHECKPOINT}/{name}": network / name for name in CHECKPOINT_FILES}
    sources |= {f"{LEDGER}/{name}": ledger / name for name in LEDGER_FILES}
    for converted in models.find_converted(manifest, ledger, place):
        files = (*converted.files, conversion.FACTS)
        sources |= {f"{models.ENGINE}/{file}": converted.folder / file for file in files}
    facts = summary(log, manifest)
    with new_folder(out) as partial:
        copy_files(sources, partial)
        write_json(partial / models.FACTS, {"format": models.FORMAT, "summary": facts})
        write_atomic(partial / models.README, describe(log, facts, "A smoothed image classifier", "FOLDER"))
        write_atomic(partial / SUMS, models.checksums(partial))
        # Before anybody sees the folder: whoever receives it will make the same checks.
        Export.open(partial)
    return out


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
    # A ledger is about the checkpoint above it.
    is_network = (checkpoint_folder(place) / WEIGHTS).is_file()
    loaded = open_checkpoint(checkpoint or (place if is_network else _checkpoint_above(place)))
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "model.onnx"
        onnx.convert(loaded.model, loaded.info.shape, made)
        write_atomic(out, made.read_bytes())
    return out


def push(
    folder: Path | str,
    repo: str,
    *,
    private: bool = False,
    message: str | None = None,
    revision: str | None = None,
) -> str:
    """Uploads a network to the Hub and returns the address of the commit; all hashes are checked first.

    Args:
        folder: An export, a training run, which is exported if it has a ledger, a checkpoint, or zoo:NAME.
        repo: user/name; the repository is created if it does not exist.
        private: Create a private repository.
        message: The message of the commit.
        revision: The branch, which is created if it does not exist.
    """
    # Everything is put together in a temporary folder, so that the source stays as it is.
    name, source = repo.removeprefix(hub.SCHEME), hub.local(folder)
    with tempfile.TemporaryDirectory() as temporary:
        staged = Path(temporary) / "repository"
        # An export goes as it is, a run with a ledger as an export, anything else as a bare checkpoint.
        if is_export(source):
            copy_files({file: source / file for file in (SUMS, *Export.open(source).check_files())}, staged)
        elif (source / LEDGER).is_dir():
            export_run(source / LEDGER, staged)
        else:
            network = checkpoint_folder(source)
            if not network.is_dir():
                raise CheckpointError(f"There is no export, run or checkpoint in {source}; check the path.")
            verified_manifest(network)
            copy_files({f"{CHECKPOINT}/{file}": network / file for file in CHECKPOINT_FILES}, staged)
        write_atomic(staged / CARD, card(staged, name))
        text = message or f"smoothheads: {Path(folder).resolve().name}"
        return hub.upload(staged, repo, message=text, private=private, revision=revision)


def card(folder: Path, name: str) -> str:
    """Returns the README.md of a repository on the Hub: metadata, how to use it, results and guarantee.

    Args:
        folder: An export or a checkpoint.
        name: user/name.
    """
    place = hub.SCHEME + name
    front: dict[str, Any] = {
        "library_name": "smoothheads",
        "pipeline_tag": "image-classification",
        "tags": ["certified-robustness", "randomized-smoothing"],
    }
    if is_export(folder):
        facts = Export.open(folder).facts["summary"]
        body = describe(read_log(folder / LEDGER), facts, name, place)
        # The certified accuracies as the Hub's model-index, which it shows beside the card.
        metrics = [
            {
                "type": "certified_accuracy",
                "name": f"Certified accuracy at {facts['norm']} radius {each['radius']:g}",
                "value": round(each["value"], 6),
            }
            for each in facts["certified"]
        ]
        acr = {"type": "acr", "name": "Average certified radius", "value": round(facts["acr"]["value"], 6)}
        result = {
            "task": {"type": "image-classification"},
            "dataset": {"name": facts["data"], "type": facts["data"], "split": "test"},
            "metrics": [*metrics, acr],
        }
        front["model-index"] = [{"name": name.rpartition("/")[2], "results": [result]}]
    else:
        use, lead = CLASSIFIER, "An image classifier that has not been certified yet."
        if trained_config(folder).model.arch == "denoiser":
            use, lead = DENOISER, "A denoiser to put in front of a classifier that was trained without noise."
            front["pipeline_tag"] = "image-to-image"
        needs = "`pip install 'smoothheads[hub]'`"
        body = BODY.format(name=name, lead=lead, use=use.format(place=place), needs=needs)
    return f"---\n{json.dumps(front, indent=2)}\n---\n\n{body}"  # JSON is YAML too


def describe(log: Results, facts: Mapping[str, Any], name: str, place: str) -> str:
    """Returns the text for people that comes with a certified classifier, in Markdown.

    Args:
        log: The ledger.
        facts: Its `summary`.
        name: The title.
        place: What opens the classifier: an address, or FOLDER.
    """
    # What it takes to open it: this version, and the extras of the engine and of the place.
    manifest = log.manifest
    version = "" if manifest is None else manifest.versions.get("smoothheads")
    engine = models.EXTRAS.get(facts["engine"])
    extras = [] if engine is None else [engine]
    extras += ["hub"] if place.startswith(hub.SCHEME) else []
    needs = f"smoothheads {version}" + "".join(f" with its extra {extra}" for extra in extras)
    lead = (
        "A smoothed image classifier with certificates: for each test image a radius within which no change "
        "of the image alters the prediction."
    )
    rows = [f"| {each['radius']:g} | {each['value']:.1%} |" for each in facts["certified"]]
    numbers: dict[str, Any] = {
        "acr": facts["acr"]["value"],
        "n": "without limit" if facts["n"] is None else f"{facts['n']:,}",
        "served": log.certified_classes,
        "present": len(log.class_acr),
        "worst": log.class_acr[log.worst_class],
    }
    certified = CERTIFIED.format(
        **{**facts, **numbers, "certified": "\n".join(rows), "scope": words.scope(log)},
        guaranteed="\n".join(f"- {line}" for line in words.guaranteed(log)),
        not_guaranteed="\n".join(f"- {line}" for line in words.not_guaranteed(log)),
    )
    return BODY.format(name=name, lead=lead, use=CLASSIFIER.format(place=place), needs=needs) + certified


def copy_files(sources: Mapping[str, Path], folder: Path) -> None:
    """Copies each file under its name in the folder."""
    for name, source in sources.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / name)


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
        "classes": summarize_classes(log, found.radii).to_dict(found.radii),
    }


def _checkpoint_above(ledger: Path) -> Path:
    folder = ledger.absolute().parent
    if not (checkpoint_folder(folder) / WEIGHTS).is_file():
        raise CheckpointError(f"{folder} has no checkpoint of this ledger: name it with --checkpoint.")
    return folder
