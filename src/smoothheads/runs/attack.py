"""An attack on a ledger: checkpoint, ledger and data in, results beside the ledger out. Run it again and it
goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from smoothheads import hub
from smoothheads.attack import record
from smoothheads.attack.falsify import falsify, outcome
from smoothheads.attack.outcome import Attacked, AttackOutcome, Claim
from smoothheads.attack.settings import AttackSettings
from smoothheads.checkpoint import Checkpoint
from smoothheads.config import require_equal, to_dict
from smoothheads.config.check import at_least
from smoothheads.data import Dataset, SubsetConfig
from smoothheads.errors import LedgerError
from smoothheads.files import sha256
from smoothheads.provenance import versions
from smoothheads.results.ledger import TABLE
from smoothheads.results.manifest import FILE, Manifest
from smoothheads.results.read import ledger_folder, read_log
from smoothheads.results.results import Results
from smoothheads.runs.certify import certification_images
from smoothheads.runs.models import LEDGER, find_converted, open_checkpoint

OnImages = Callable[[int, int, int], None]
"""Told how many images are done, of how many, and how many balls were broken."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A ledger and the network that it is about."""

    network: Path
    ledger: Path


@dataclass(frozen=True, slots=True)
class Attack:
    """What came of it."""

    outcome: AttackOutcome
    radii: tuple[float, ...]
    """Zero, and those that were attacked outside."""
    name: str
    facts: dict[str, Any]
    files: tuple[Path, Path]

    def summary(self) -> dict[str, Any]:
        return record.summary(self.outcome, self.facts, self.radii)


def subject(path: Path | str, ledger: Path | str | None = None) -> Subject:
    """The ledger beside a checkpoint, or in a run's folder; of a ledger's path, the run that it lies in."""
    path = hub.local(path)
    if ledger is None and (path / TABLE).is_file():
        if not (path.absolute().parent / "checkpoint").is_dir():
            remedy = f"smoothheads attack CHECKPOINT --ledger {path}"
            raise LedgerError(f"the network that {path} is about", "a ledger alone", remedy)
        return Subject(path.absolute().parent, path)
    found = ledger_folder(ledger or path)
    return Subject(path, path / LEDGER if found == path else found)


def attack_run(
    about: Subject,
    settings: AttackSettings,
    *,
    first: int | None = None,
    out: Path | str | None = None,
    root: str | None = None,
    fresh: bool = False,
    on_images: OnImages | None = None,
) -> Attack:
    """Attacks what earlier results of that name do not hold (default: `attack` in the ledger's folder), and
    saves after every image."""
    checkpoint = open_checkpoint(about.network)
    log = read_log(about.ledger)
    manifest = log.manifest
    if manifest is None:
        raise LedgerError("a ledger with its manifest", "a foreign log", "certify with `smoothheads certify`")
    log = _first(log, first)
    folder = about.ledger if about.ledger.is_dir() else about.ledger.parent
    artefacts = tuple(find_converted(manifest, folder, about.network).values()) or None
    dataset, certified = _images(checkpoint, log.name, manifest, root), manifest.certify
    out = Path(out or folder / "attack")
    facts = {  # what the results depend on
        "ledger": {"name": log.name, "manifest_sha256": sha256(folder / FILE)},
        "weights": manifest.weights,
        "certify": to_dict(certified),
        "settings": to_dict(settings),
        "versions": versions(),
    }
    radii = (0.0, *settings.outside(certified.sigma))
    claims = [Claim(row.index, row.label, row.prediction, row.radius) for row in log.rows]
    done = _earlier(out, facts, claims, fresh=fresh)
    max_value = dataset.info.grid.max_value

    def tell() -> None:
        broken = len(outcome(done, max_value, certified, settings).violations)
        if on_images:
            on_images(len(done), len(claims), broken)

    def on_image(attacked: Attacked) -> None:
        done.append(attacked)
        record.save(out, outcome(done, max_value, certified, settings), facts, radii)
        tell()

    tell()
    whole = falsify(
        checkpoint.model,
        dataset,
        claims,
        certified,
        settings,
        artefacts=artefacts,
        done=tuple(done),
        on_image=on_image,
    )
    record.save(out, whole, facts, radii)
    return Attack(whole, radii, log.name, facts, record.files(out))


def _first(log: Results, count: int | None) -> Results:
    if log.norm != "l2":
        raise LedgerError("radii in the l2 norm", f"{log.norm} in {log.name}", "attack a ledger of l2 radii")
    if count is None:
        return log
    at_least("first", count, 1)
    return log.take(np.arange(min(count, len(log))))


def _images(checkpoint: Checkpoint, name: str, manifest: Manifest, root: str | None) -> Dataset:
    """The images that the ledger is about, if the network is the one that it is about too."""
    data = replace(checkpoint.config.data, root=root or checkpoint.config.data.root)
    dataset = certification_images(checkpoint, data, SubsetConfig(indices=manifest.indices))
    for what, stated, got in (
        ("weights", manifest.weights, checkpoint.weights_hash),
        ("images", manifest.data and manifest.data.fingerprint, dataset.fingerprint),
    ):
        if stated != got:
            raise LedgerError(
                f"the {what} that {name} was certified with ({str(stated)[:12]}...)",
                f"{got[:12]}...",
                "attack the checkpoint and data that the ledger names",
            )
    return dataset


def _earlier(out: Path, facts: dict[str, Any], claims: Sequence[Claim], *, fresh: bool) -> list[Attacked]:
    record.claim(out)
    stored, attacked = ({}, []) if fresh else record.load(out)
    if stored:
        what, remedy = f"the settings {out} was started with", "name another --out, or start --fresh"
        require_equal(stored, facts, LedgerError, what, remedy)
    others = [each.claim.index for each in attacked if each.claim not in set(claims)]
    if others:
        raise LedgerError(
            f"all {len(attacked)} images of the earlier results in {out}",
            f"a selection without {len(others)} of them",
            "raise --first, name another --out, or start --fresh",
        )
    return attacked
