"""An attack as a table: certified below, attacked above, and the verdict."""

from __future__ import annotations

from collections.abc import Sequence

from smoothheads.attack.outcome import AttackOutcome
from smoothheads.report.table import Cell, Table, number


def table(outcome: AttackOutcome, radii: Sequence[float]) -> Table:
    """Certified below, attacked above, and the verdict."""
    curves = {
        "certified (lower)": outcome.certified_accuracy(radii),
        "attacked (upper)": outcome.empirical_accuracy(radii),
    }
    rows = [(Cell(name), *(number(float(x), ".1f", 100) for x in values)) for name, values in curves.items()]
    return Table(
        title="Accuracy (%) of the smoothed classifier within radius r",
        columns=("", *(f"{r:.3g}" for r in radii)),
        rows=tuple(rows),
        notes=(
            *verdict(outcome),
            "attacked: right, and no image nearer than r was found that gets another class.",
        ),
    )


def verdict(outcome: AttackOutcome) -> tuple[str, str]:
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
