"""What an image's stored votes show, whatever was written beside them."""

from __future__ import annotations

from smoothheads.certify.algorithm import DAMAGED, Terms, check_correction
from smoothheads.certify.config import CertifyConfig
from smoothheads.errors import SoundnessError
from smoothheads.types import ABSTAIN, Certificate, Certified, Votes

_ROUNDING = 1e-9  # another version of SciPy may round otherwise; text is cut off besides


def recompute(config: CertifyConfig, certified: Certified, correction: float) -> Certificate:
    """The certificate that an image's own votes give, whatever `certified.certificate` claims.

    fixed (with any bound) and radius: exactly what CERTIFY gives for these votes; whether the pilot of
    `radius` would have planned this n is not asked, as its validity does not depend on the plan. table and
    anytime decide while they count, but only totals are stored: among the certificates that some order of
    these votes gives (and with which the table budget ends at this very n) the nearest to the claimed radius.
    `correction` is the noise's. Raises SoundnessError for votes that this budget cannot have asked for.
    """
    check_correction(correction)
    classes = certified.votes.counts.shape[1]
    _require_counts("votes", certified.votes)
    _require_counts("selection votes", certified.selection)
    if config.budget.uses_label and not 0 <= certified.label < classes:
        raise SoundnessError(f"a label from 0 to {classes - 1}", str(certified.label), DAMAGED)
    label = certified.label if config.budget.uses_label else None
    terms = Terms.of(config, correction, certified.index, label)
    selection, votes = (table.for_rule(config.rule) for table in (certified.selection, certified.votes))
    return config.budget.recompute(terms, selection, votes, certified.certificate)


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


def _require_counts(what: str, votes: Votes) -> None:
    totals = votes.counts.sum(axis=1)
    if votes.counts.min(initial=0) < 0 or (totals != totals[:1]).any():
        got = str(votes.counts.tolist())[:80]
        raise SoundnessError(f"{what} >= 0 with the same total for every rule", got, DAMAGED)
