"""A classifier by its address, as users of the Hub know it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from smoothheads import hub
from smoothheads.certify.engines import Store
from smoothheads.runs.exported import Exported, is_export
from smoothheads.runs.layout import engines_folder, open_checkpoint
from smoothheads.smoothed import Smoothed


def from_pretrained(place: str | Path, **changes: Any) -> Smoothed:
    """The smoothed classifier in a folder or at `hf://user/name[@revision]`.

    An export is exactly the function that was certified, and refuses `changes` that make another one; a plain
    checkpoint has the sigma that it was trained with unless `changes` name another. Every file is checked
    against its hash, and no code that comes with it is run.
    """
    folder = hub.local(place)
    if is_export(folder):
        return Exported.open(folder).smoothed(**changes)
    checkpoint = open_checkpoint(folder)
    settings = {"sigma": checkpoint.config.train.sigma, "store": Store(engines_folder(folder)), **changes}
    return Smoothed(checkpoint.model, checkpoint.info, **settings)
