"""Other threats from a log's certificates or stored votes, without one forward pass.

Each log that comes back holds the certificates of one threat: radii, and the class where one is certified.
"""

from __future__ import annotations

import math

import numpy as np

from smoothheads.certify.bounds import clopper_pearson_lower, clopper_pearson_upper
from smoothheads.certify.threats import linf_radius, linf_radius_of_l1, linf_radius_uniform, top_k_radius
from smoothheads.errors import ConfigError, LedgerError
from smoothheads.noise import Uniform
from smoothheads.results.recertify import obstacle
from smoothheads.results.results import Floats, Results
from smoothheads.types import ABSTAIN, Certified

LINF = "linf"


def linf(log: Results, dimension: int | None = None) -> Results:
    """The l-infinity balls inside the certified balls; under uniform noise, the larger ones that its bounds
    prove. `dimension` is the number of pixel values, for a log that does not state its shape."""
    if log.norm != log.law.norm:
        raise LedgerError(f"{log.law.norm} radii in {log.name}", log.norm, "give the original ledger")
    if dimension is None:
        shape = None if log.manifest is None else log.manifest.shape
        if not shape:
            wanted = f"a log that states the shape of its images in {log.name}"
            raise ConfigError(wanted, "none", "give the dimension")
        dimension = math.prod(shape)
    return log.without_votes(radius=_linf_radii(log, dimension), norm=LINF)


def top_k(log: Results, k: int) -> Results:
    """Whether the true label stays among the k most likely classes, and how far (l2). With probability at
    least 1 - alpha per image: its lower and the others' upper bounds hold at once, at alpha / C each.

    Raises LedgerError where votes or settings are missing, or where the votes decided when to stop.
    """
    if log.law.norm != "l2" or log.norm != "l2":
        got = f"{log.norm} radii in {log.name}"
        raise LedgerError("a ledger of Gaussian noise", got, "top-k is known for l2 only")
    if (error := obstacle(log)) is not None:
        raise error
    radius = np.array([_top_k_radius(row, log, k) for row in log.rows])
    prediction = np.where(radius > 0, log.label, ABSTAIN)
    return log.without_votes(radius=radius, prediction=prediction)


def _linf_radii(log: Results, dimension: int) -> Floats:
    inside = linf_radius if log.norm == "l2" else linf_radius_of_l1
    radii = [inside(float(radius), dimension) for radius in log.radius]
    if log.law != Uniform() or log.sigma is None or not log.rows:
        return np.array(radii)
    bounds = [0.0 if row.abstained else row.certificate.p_lower for row in log.rows]
    return np.array(
        [
            max(radius, linf_radius_uniform(bound, log.sigma, dimension))
            for radius, bound in zip(radii, bounds, strict=True)
        ]
    )


def _top_k_radius(row: Certified, log: Results, k: int) -> float:
    """Of the others only the k with most votes matter."""
    n = row.votes.n
    if n == 0 or log.alpha is None or log.sigma is None or log.manifest is None:
        return 0.0
    votes, taken_off = row.votes.for_aggregation(log.aggregation), log.manifest.correction
    level = log.alpha / len(votes)
    rivals = np.sort(np.delete(votes, row.label))[::-1][:k].tolist()
    p_lower = max(0.0, clopper_pearson_lower(int(votes[row.label]), n, level) - taken_off)
    others = [clopper_pearson_upper(count, n, level) + taken_off for count in rivals]
    return top_k_radius(p_lower, others, k, log.sigma)
