"""smoothheads attack CHECKPOINT [...]"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from smoothheads.attack.settings import AttackSettings
from smoothheads.cli.common import first_argument, parse, print_json, say
from smoothheads.cli.progress import Progress
from smoothheads.config import CertifyConfig, SubsetConfig, from_dict, to_dict
from smoothheads.config.check import at_least
from smoothheads.errors import LedgerError

if TYPE_CHECKING:
    from smoothheads.attack.outcome import Attacked, Claim, Outcome
    from smoothheads.certify.engines import Artefacts
    from smoothheads.checkpoint import Checkpoint
    from smoothheads.data import Dataset
    from smoothheads.report.table import Table
    from smoothheads.results.log import Log

DESCRIPTION = """Try to prove a ledger wrong. Inside every certified ball gradient attacks look for an image
that the smoothed classifier calls another class: that must not happen more often than alpha allows. Outside,
the nearest such image gives an upper curve: no sound certificate of this classifier is above it.

CHECKPOINT comes first: the network that the ledger is about. Attacked images stay on the grid of the data
and distances are exact integers. Finished images are in OUT.tsv at once; run the same command again after an
interruption and it goes on.

Exit code 0 if the ledger stands, 1 if it is refuted."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    ledger: Path | None = None
    """Folder of the ledger (default: ledger beside the checkpoint)."""
    images: int | None = None
    """Attack only the first so many images of the ledger."""
    settings: Annotated[AttackSettings, tyro.conf.arg(name="")] = field(default_factory=AttackSettings)
    out: Path | None = None
    """Name of the results, without ending (default: attack in the ledger's folder)."""
    root: str | None = None
    """Where the data set lies, if not where it lay in training."""
    fresh: bool = False
    """Throw away earlier results of that name."""
    plot: Path | None = None
    """Draw both curves into this file (png, svg, pdf)."""
    json: bool = False
    """Print the outcome as JSON."""


def main(arguments: list[str]) -> int:
    name, rest = first_argument(arguments, "a checkpoint", "give the folder that `smoothheads train` wrote")
    args = parse(
        Attack, rest, default=Attack(), prog=f"attack {name or 'CHECKPOINT'}", description=DESCRIPTION
    )
    folder = Path(name or "")

    from smoothheads.attack import record
    from smoothheads.results.cohen import read_log
    from smoothheads.runs.exported import find_artefacts
    from smoothheads.runs.layout import open_checkpoint

    ready = open_checkpoint(folder)
    ledger = args.ledger or folder / "ledger"
    log = _first(read_log(ledger), args.images)
    where = ledger if ledger.is_dir() else ledger.parent
    networks = tuple(find_artefacts(log.manifest, where, folder).values()) or None
    outcome, facts, radii = _run(ready, log, where, args, networks)
    if args.json:
        print_json(record.summary(outcome, facts, radii))
    else:
        from smoothheads.report.table import to_text

        print(to_text(table(outcome, radii)))
    if args.plot is not None:
        from smoothheads.report import plots

        plots.save(plots.attacked_accuracy(outcome, log.name), args.plot)
        say(f"wrote {args.plot}")
    return int(outcome.refuted)


def _run(
    ready: Checkpoint, log: Log, folder: Path, args: Attack, artefacts: Artefacts | None
) -> tuple[Outcome, dict[str, Any], tuple[float, ...]]:
    """Attacks what earlier results do not hold, and saves after every image."""
    from smoothheads.attack import record
    from smoothheads.attack.falsify import falsify, outcome
    from smoothheads.attack.outcome import Claim

    certified = from_dict(CertifyConfig, log.manifest.get("certify"), "manifest.certify")
    dataset = _images(ready, log, args.root)
    facts = _facts(log, folder, args.settings)
    out, radii = args.out or folder / "attack", (0.0, *args.settings.outside(certified.sigma))
    claims = [Claim(row.index, row.label, row.prediction, row.radius) for row in log.rows]
    done = _earlier(out, facts, claims, fresh=args.fresh)
    q = dataset.info.grid.q
    with Progress("attack", len(claims)) as progress:
        progress.start_at(len(done))

        def on_image(each: Attacked) -> None:
            done.append(each)
            found = outcome(done, q, certified, args.settings)
            record.save(out, found, facts, radii)
            progress.update(
                len(done), f"{len(done)} of {len(claims)} images, {len(found.violations)} violated"
            )

        found = falsify(
            ready.model,
            dataset,
            claims,
            certified,
            args.settings,
            artefacts=artefacts,
            done=tuple(done),
            on_image=on_image,
        )
    record.save(out, found, facts, radii)
    say(f"results: {', '.join(map(str, record.files(out)))}")
    return found, facts, radii


def table(outcome: Outcome, radii: Sequence[float]) -> Table:
    """Certified below, attacked above, and the verdict."""
    from smoothheads.report.table import Cell, Table

    curves = {
        "certified (lower)": outcome.certified_accuracy(radii),
        "attacked (upper)": outcome.empirical_accuracy(radii),
    }
    rows = [
        (Cell(name), *(Cell(f"{100 * x:.1f}", float(x)) for x in values)) for name, values in curves.items()
    ]
    return Table(
        title="Accuracy (%) of the smoothed classifier within radius r",
        columns=("", *(f"{r:.3g}" for r in radii)),
        rows=tuple(rows),
        notes=(
            *verdict(outcome),
            "attacked: right, and no image nearer than r was found that gets another class.",
        ),
    )


def verdict(outcome: Outcome) -> tuple[str, str]:
    """What was broken inside, and what that says of the ledger."""
    claims = sum(not each.claim.abstained for each in outcome.attacked)
    shown = ", ".join(str(each.claim.index) for each in outcome.violations[:8])
    found = f"inside: {len(outcome.violations)} of {claims} certified balls broken"
    result = "REFUTED" if outcome.refuted else "not refuted"
    return (
        f"{found} (idx {shown})." if shown else f"{found}.",
        f"ledger: {result}; a sound one allows {outcome.level:g} per image, and as many in "
        f"{len(outcome.attacked)} images have p = {outcome.p_value:.2g}.",
    )


def _first(log: Log, images: int | None) -> Log:
    import numpy as np

    if not log.rows:
        raise LedgerError("a ledger with its manifest", "a foreign log", "certify with `smoothheads certify`")
    if log.norm != "l2":
        raise LedgerError("radii in the l2 norm", f"{log.norm} in {log.name}", "attack a ledger of l2 radii")
    if images is None:
        return log
    at_least("images", images, 1)
    return log.take(np.arange(min(images, len(log))))


def _images(ready: Checkpoint, log: Log, root: str | None) -> Dataset:
    """The images that the ledger is about, if the network is the one that it is about too."""
    from smoothheads.results.manifest import run_indices
    from smoothheads.runs.certify import certification_images

    data = replace(ready.config.data, root=root or ready.config.data.root)
    dataset = certification_images(ready, data, SubsetConfig(indices=run_indices(log.manifest)))
    for what, stated, got in (
        ("weights", log.manifest.get("weights"), ready.weights_hash),
        ("images", log.manifest.get("data", {}).get("fingerprint"), dataset.fingerprint),
    ):
        if stated != got:
            raise LedgerError(
                f"the {what} that {log.name} was certified with ({str(stated)[:12]}...)",
                f"{got[:12]}...",
                "attack the checkpoint and data that the ledger names",
            )
    return dataset


def _facts(log: Log, folder: Path, settings: AttackSettings) -> dict[str, Any]:
    """What the results depend on."""
    from smoothheads.files import sha256
    from smoothheads.provenance import versions
    from smoothheads.results.ledger import MANIFEST

    return {
        "ledger": {"name": log.name, "manifest_sha256": sha256(folder / MANIFEST)},
        "weights": log.manifest["weights"],
        "certify": log.manifest["certify"],
        "settings": to_dict(settings),
        "versions": versions(),
    }


def _earlier(out: Path, facts: dict[str, Any], claims: Sequence[Claim], *, fresh: bool) -> list[Attacked]:
    from smoothheads.attack import record
    from smoothheads.results.manifest import require_equal

    stored, attacked = ({}, []) if fresh else record.load(out)
    if stored:
        require_equal(stored, facts, str(out))
    others = [each.claim.index for each in attacked if each.claim not in set(claims)]
    if others:
        raise LedgerError(
            f"all {len(attacked)} images of the earlier results in {out}",
            f"a selection without {len(others)} of them",
            "raise --images, name another --out, or start --fresh",
        )
    return attacked
