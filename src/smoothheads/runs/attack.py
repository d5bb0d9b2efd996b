"""An attack on a ledger: checkpoint, ledger and data in, results beside the ledger out.

Run it again after an interruption and it continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from smoothheads import hub
from smoothheads.attack.falsify import falsify, outcome
from smoothheads.attack.outcome import (
    Attacked,
    AttackOutcome,
    Claim,
    attack_files,
    load_attack,
    reserve_attack,
    save_attack,
)
from smoothheads.attack.settings import AttackSettings
from smoothheads.config import require_equal, to_dict
from smoothheads.config.check import at_least
from smoothheads.errors import LedgerError
from smoothheads.files import sha256
from smoothheads.provenance import versions
from smoothheads.results.ledger import TABLE
from smoothheads.results.manifest import FILE
from smoothheads.results.read import ledger_folder, read_log
from smoothheads.runs.certify import ledger_images
from smoothheads.runs.models import LEDGER, find_converted, open_checkpoint

OnImages = Callable[[int, int, int], None]
"""Gets the number of images done, of all images, and of broken balls."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A ledger and the network that it is about."""

    network: Path
    ledger: Path


@dataclass(frozen=True, slots=True)
class Attack:
    """A finished attack and where it is kept."""

    outcome: AttackOutcome
    radii: tuple[float, ...]
    """Zero, and those that were attacked outside."""
    name: str
    facts: dict[str, Any]
    files: tuple[Path, Path]

    def summary(self) -> dict[str, Any]:
        return self.outcome.summary(self.facts, self.radii)


def subject(path: Path | str, ledger: Path | str | None = None) -> Subject:
    """Returns the ledger beside a checkpoint or in a run's folder; for a ledger, the run that it lies in."""
    path = hub.local(path)
    # A ledger knows its network by its hash only; `certify` puts the ledger into the folder of the run.
    if ledger is None and (path / TABLE).is_file():
        if not (path.absolute().parent / "checkpoint").is_dir():
            raise LedgerError(
                f"{path} is a ledger without its network; run `smoothheads attack CHECKPOINT --ledger "
                f"{path}`."
            )
        return Subject(path.absolute().parent, path)
    folder = ledger_folder(ledger or path)
    return Subject(path, path / LEDGER if folder == path else folder)


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
    """Attacks the images that earlier results of that name do not hold, and saves after every image.

    Args:
        about: The ledger and its network.
        settings: How hard to attack.
        first: Attack only the first so many images of the ledger.
        out: The name of the results; by default `attack` in the ledger's folder.
        root: The folder of the data set, if not where it lay in training.
        fresh: Whether earlier results of that name are thrown away.
        on_images: Gets the progress.
    """
    # 1. The certificates to attack, and network, engine and images that they are about.
    checkpoint = open_checkpoint(about.network)
    log = read_log(about.ledger)
    manifest = log.manifest
    if manifest is None:
        raise LedgerError(f"{about.ledger} is a log without a manifest; certify with `smoothheads certify`.")
    if log.norm != "l2":
        raise LedgerError(f"{log.name} has {log.norm} radii; attack a ledger of l2 radii.")
    if first is not None:
        at_least("first", first, 1)
        log = log.take(np.arange(min(first, len(log))))
    folder = about.ledger if about.ledger.is_dir() else about.ledger.parent
    converted = find_converted(manifest, folder, about.network)
    dataset, certified = ledger_images(checkpoint, manifest, root), manifest.certify
    # 2. What earlier results of that name hold, if they depend on the same facts.
    out = Path(out or folder / "attack")
    facts = {
        "ledger": {"name": log.name, "manifest_sha256": sha256(folder / FILE)},
        "weights": manifest.weights,
        "certify": to_dict(certified),
        "settings": to_dict(settings),
        "versions": versions(),
    }
    radii = (0.0, *settings.outside(certified.sigma))
    claims = [Claim(row.index, row.label, row.prediction, row.radius) for row in log]
    done = {attacked.claim: attacked for attacked in _earlier(out, facts, claims, fresh=fresh)}
    left = [claim for claim in claims if claim not in done]
    max_value = dataset.info.grid.max_value

    def finished() -> AttackOutcome:
        attacked = [done[claim] for claim in claims if claim in done]
        return outcome(attacked, max_value, certified, settings)

    def report() -> None:
        if on_images:
            on_images(len(done), len(claims), len(finished().violations))

    # 3. The other images, one after the other; each is saved at once.
    report()
    attacks = falsify(checkpoint.model, dataset, left, certified, settings, converted=converted)
    with closing(attacks):
        for attacked in attacks:
            done[attacked.claim] = attacked
            save_attack(out, finished(), facts, radii)
            report()
    save_attack(out, finished(), facts, radii)
    return Attack(finished(), radii, log.name, facts, attack_files(out))


def _earlier(out: Path, facts: dict[str, Any], claims: Sequence[Claim], *, fresh: bool) -> list[Attacked]:
    """Returns what was attacked before under this name, all of which must be attacked again otherwise."""
    reserve_attack(out)
    stored, attacked = ({}, []) if fresh else load_attack(out)
    if stored:
        what, remedy = f"the settings {out} was started with", "name another --out, or start --fresh"
        require_equal(stored, facts, LedgerError, what, remedy)
    others = [each.claim.index for each in attacked if each.claim not in set(claims)]
    if others:
        raise LedgerError(
            f"{out} holds {len(attacked)} images, {len(others)} of which are not selected now; raise "
            "--first, name another --out, or start --fresh."
        )
    return attacked
