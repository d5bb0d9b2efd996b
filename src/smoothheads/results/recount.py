"""What an image's stored votes show, whatever was written beside them: every certificate of a ledger must
follow from its votes, for any budget and bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from smoothheads.certify.algorithm import DAMAGED, Terms, check_correction
from smoothheads.certify.config import CertifyConfig
from smoothheads.errors import SmoothheadsError, SoundnessError
from smoothheads.results.manifest import Manifest
from smoothheads.types import ABSTAIN, Certificate, Certified

_ROUNDING = 1e-9  # another version of SciPy may round otherwise; text is cut off besides


class Damage(NamedTuple):
    """What is wrong with one row."""

    image: int
    code: str
    """checksum, or which number the votes contradict."""
    message: str


def recompute(config: CertifyConfig, certified: Certified, correction: float) -> Certificate:
    """The certificate that an image's own votes give, whatever `certified.certificate` claims.

    fixed (with any bound) and radius: exactly what CERTIFY gives for these votes; whether the pilot of
    `radius` would have planned this n is not asked, as its validity does not depend on the plan. table and
    anytime decide while they count, but only totals are stored: among the certificates that some order of
    these votes gives (and with which the table budget ends at this very n) the nearest to the claimed radius.
    `correction` is the noise's. Raises SoundnessError for votes that this budget cannot have asked for.
    """
    check_correction(correction)
    for what, votes in (("votes", certified.votes), ("selection votes", certified.selection)):
        totals = votes.counts.sum(axis=1)
        if votes.counts.min(initial=0) < 0 or (totals != totals[:1]).any():
            got = str(votes.counts.tolist())[:80]
            raise SoundnessError(f"{what} >= 0 with the same total for every aggregation", got, DAMAGED)
    label = certified.label if config.budget.uses_label else None
    classes = certified.votes.counts.shape[1]
    if label is not None and not 0 <= label < classes:
        raise SoundnessError(f"a label from 0 to {classes - 1}", str(label), DAMAGED)
    terms = Terms.of(config, correction, certified.index, label)
    selection, counts = (
        votes.for_aggregation(config.aggregation) for votes in (certified.selection, certified.votes)
    )
    return config.budget.recompute(terms, selection, counts, certified.certificate)


def contradiction(claimed: Certificate, follows: Certificate) -> str | None:
    """How `claimed`, perhaps rounded down as in a ledger, differs from what `follows` from its votes (see
    `recompute`), in words; None if it does not."""
    for name, cut in (("n0", 0.0), ("n", 0.0), ("k", 0.0), ("radius", 1e-6), ("p_lower", 1e-15)):
        said, shown = getattr(claimed, name), getattr(follows, name)
        if not shown - cut - _ROUNDING <= said <= shown + _ROUNDING:
            return f"{name} {said:.15g}, but the votes give {shown:.15g}"
    if claimed.prediction != follows.prediction:
        return f"class {claimed.prediction}, but the votes give {follows.prediction} ({ABSTAIN}: none)"
    return None


def recounted(row: Certified, manifest: Manifest) -> Certified | Damage:
    """The row, with the radius that its votes show where a table budget wrote it rounded down; or what they
    contradict."""
    try:
        follows = recompute(manifest.certify, row, manifest.correction)
    except SmoothheadsError as error:
        return Damage(row.index, "votes", str(error))
    wrong = contradiction(row.certificate, follows)
    if wrong is not None:
        return Damage(row.index, wrong.partition(" ")[0], wrong)
    if manifest.budget == "table":
        return replace(row, certificate=replace(row.certificate, radius=follows.radius))
    return row


def damage(rows: Iterable[Certified], manifest: Manifest) -> Iterator[Damage]:
    """Of every row that does not follow from its votes."""
    return (checked for row in rows if isinstance(checked := recounted(row, manifest), Damage))
