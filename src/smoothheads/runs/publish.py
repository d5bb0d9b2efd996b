"""A classifier on the Hub: what was certified, the ledger as evidence, and a card that says so."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from smoothheads import hub
from smoothheads.checkpoint import checkpoint_folder, trained_config, verified_manifest
from smoothheads.errors import CheckpointError
from smoothheads.files import write_atomic
from smoothheads.report import words
from smoothheads.results import read_log
from smoothheads.runs.export import copy_files, export_run
from smoothheads.runs.models import CHECKPOINT, CHECKPOINT_FILES, LEDGER, SUMS, Export, is_export

CARD: Final = "README.md"
TASK: Final = "image-classification"

BODY = """
# {name}

{lead}

## Use

{use} It needs `pip install 'smoothheads[hub]'`. Every file is checked against its hash and none is run.
"""

CLASSIFIER = """```python
import smoothheads as sh

smoothed = sh.from_pretrained("hf://{name}")  # or "hf://{name}@REVISION", which never changes
image = "image.png"  # or grid integers [C, H, W], or a picture of Pillow
print(smoothed.predict(image).prediction)  # -1 is an abstention
result = smoothed.certify_image(image)
print(result.prediction, result.radius)
```

or `smoothheads predict hf://{name} image.png --radius`."""

DENOISER = """```python
import smoothheads as sh

denoiser = sh.load_checkpoint("hf://{name}").model.heads[0]
network = sh.denoised(classifier, denoiser, sigma=0.25)  # certify this instead of the classifier
```"""

CERTIFIED = """
## What was certified

{images} test images of {data}: sigma {sigma:g}, n {n:,}, alpha {alpha:g}, aggregation {aggregation}.

| {norm} radius | certified accuracy |
|---:|---:|
{rows}

Average certified radius: {acr:.3f}. Abstained: {abstained:.1%}. Every certificate with its votes is in
`ledger/`; `smoothheads audit` checks them.

## What is guaranteed

{guaranteed}

## What is not

{not_guaranteed}

{scope}
"""


def push(
    folder: Path | str,
    repo: str,
    *,
    private: bool = False,
    message: str | None = None,
    revision: str | None = None,
) -> str:
    """Uploads a classifier to the Hub and returns the address of the commit; all hashes are checked first.

    Args:
        folder: an export, a training run, which is exported if it has a ledger, or a checkpoint.
        repo: user/name; the repository is created if it does not exist.
        private: create a private repository.
        message: the message of the commit.
        revision: the branch, which is created if it does not exist.
    """
    folder = Path(folder)
    with _staged(hub.local(folder)) as staged:
        write_atomic(staged / CARD, card(staged, repo.removeprefix(hub.SCHEME)))
        text = message or f"smoothheads: {folder.resolve().name}"
        return hub.upload(staged, repo, message=text, private=private, revision=revision)


def card(folder: Path, name: str) -> str:
    """Returns the README.md of an export or a checkpoint: metadata for the Hub, results and guarantee."""
    if not is_export(folder):
        lead, use, task = "An image classifier that has not been certified yet.", CLASSIFIER, TASK
        if trained_config(folder).model.arch == "denoiser":
            lead, use = "A denoiser in front of a classifier that was trained without noise.", DENOISER
            task = "image-to-image"
        return _front(name, None, task) + BODY.format(name=name, lead=lead, use=use.format(name=name))
    facts: dict[str, Any] = Export.open(folder).facts["summary"]
    log = read_log(folder / LEDGER)
    lead = (
        "A smoothed image classifier with certificates: for each test image a radius within which no change "
        "of the image alters the answer."
    )
    rows = [f"| {each['radius']:g} | {each['value']:.1%} |" for each in facts["certified"]]
    certified = CERTIFIED.format(
        **facts | {"acr": facts["acr"]["value"], "scope": words.scope(log)},
        rows="\n".join(rows),
        guaranteed="\n".join(f"- {line}" for line in words.guaranteed(log)),
        not_guaranteed="\n".join(f"- {line}" for line in words.not_guaranteed(log)),
    )
    return (
        _front(name, facts, TASK)
        + BODY.format(name=name, lead=lead, use=CLASSIFIER.format(name=name))
        + certified
    )


def _front(name: str, facts: dict[str, Any] | None, task: str) -> str:
    """Returns the card's metadata, with the certified accuracies as its model-index.

    Args:
        name: user/name.
        facts: The summary of an export, if there is one.
        task: The Hub's word for the task.
    """
    data: dict[str, Any] = {
        "library_name": "smoothheads",
        "pipeline_tag": task,
        "tags": ["certified-robustness", "randomized-smoothing"],
    }
    if facts is not None:
        accuracies = {
            f"Certified accuracy at {facts['norm']} radius {e['radius']:g}": e for e in facts["certified"]
        }
        metrics = [
            {"type": "certified_accuracy", "name": text, "value": round(each["value"], 6)}
            for text, each in accuracies.items()
        ]
        acr = {"type": "acr", "name": "Average certified radius", "value": round(facts["acr"]["value"], 6)}
        result = {
            "task": {"type": task},
            "dataset": {"name": facts["data"], "type": facts["data"], "split": "test"},
            "metrics": [*metrics, acr],
        }
        data["model-index"] = [{"name": name.rpartition("/")[2], "results": [result]}]
    return f"---\n{json.dumps(data, indent=2)}\n---\n"  # JSON is YAML too


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """Yields a temporary folder with the files to upload."""
    with tempfile.TemporaryDirectory() as temporary:
        staged = Path(temporary) / "repository"
        # An export goes as it is, a run with a ledger as an export, anything else as a bare checkpoint.
        if is_export(folder):
            copy_files({name: folder / name for name in (SUMS, *Export.open(folder).check_files())}, staged)
        elif (folder / LEDGER).is_dir():
            export_run(folder / LEDGER, staged)
        else:
            network = checkpoint_folder(folder)
            if not network.is_dir():
                raise CheckpointError(f"There is no export, run or checkpoint in {folder}; check the path.")
            verified_manifest(network)
            copy_files({f"{CHECKPOINT}/{name}": network / name for name in CHECKPOINT_FILES}, staged)
        yield staged
