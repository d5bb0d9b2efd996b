"""smoothheads push FOLDER user/name"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import tyro

from smoothheads.cli.common import parse, print_json

DESCRIPTION = """Upload a classifier to the Hugging Face Hub: weights, settings, the ledger as evidence, and a
card with the certified accuracies and what is guaranteed. `hf://user/name` then stands for it wherever a
checkpoint is taken, and `sh.from_pretrained("hf://user/name")` opens it in Python.

FOLDER is an export, a training run (it is exported if its ledger is finished), or a checkpoint. Log in first
with `hf auth login`, or set HF_TOKEN."""


@dataclass(frozen=True, kw_only=True)
class Push:
    folder: tyro.conf.Positional[Path]
    """Folder to upload."""
    repo: tyro.conf.Positional[str]
    """user/name; the repository is created if it does not exist."""
    private: bool = False
    """Make a new repository private."""
    message: str | None = None
    """Message of the commit."""
    revision: str | None = None
    """Branch to push to; it is created if it does not exist."""
    json: bool = False
    """Print the address as JSON."""


def main(arguments: list[str]) -> None:
    default = Push(folder=tyro.MISSING, repo=tyro.MISSING)
    args = parse(default, arguments or ["--help"], prog="push", description=DESCRIPTION)

    from smoothheads.runs.export import push

    address = push(args.folder, args.repo, private=args.private, message=args.message, revision=args.revision)
    if args.json:
        print_json({"address": address})
    else:
        print(address)
