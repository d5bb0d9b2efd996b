"""Every certificate of a ledger must follow from the votes beside it, whatever the budget and the bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from smoothheads.certify.budgets import contradiction, recompute
from smoothheads.errors import SmoothheadsError
from smoothheads.results.manifest import Manifest
from smoothheads.types import Certified


class Damage(NamedTuple):
    """What is wrong with one row."""

    image: int
    code: str
    """checksum, or which number the votes contradict."""
    message: str


def recounted(row: Certified, manifest: Manifest) -> Certified | Damage:
    """The row, with the radius that its votes show where a table budget wrote it rounded down; or what they
    contradict."""
    try:
        follows = recompute(manifest.certify, row, manifest.correction)
    except SmoothheadsError as error:
        return Damage(row.index, "votes", f"expected {error.expected}, got {error.got}")
    wrong = contradiction(row.certificate, follows)
    if wrong is not None:
        return Damage(row.index, wrong.partition(" ")[0], wrong)
    if manifest.budget == "table":
        return replace(row, certificate=replace(row.certificate, radius=follows.radius))
    return row


def damage(rows: Iterable[Certified], manifest: Manifest) -> Iterator[Damage]:
    """Of every row that does not follow from its votes."""
    for row in rows:
        found = recounted(row, manifest)
        if isinstance(found, Damage):
            yield found
