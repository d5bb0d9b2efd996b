"""What a study reads of a network: how far it is, how well fitted, and its certificates. No torch here."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from smoothheads.certify.config import CertifyConfig
from smoothheads.checkpoint import MANIFEST, WEIGHTS
from smoothheads.config import load_json
from smoothheads.lazy import special
from smoothheads.results import read_log
from smoothheads.results.derive import recertified
from smoothheads.results.manifest import FILE, read_manifest
from smoothheads.results.row import parse_time
from smoothheads.runs.models import METRICS
from smoothheads.types import ENSEMBLE, format_radius

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_LEDGER = "ledger.tsv"
_ROUNDING = 1e-7  # of the bound, and what the noise takes off it


@dataclass(frozen=True, slots=True, eq=False)
class Measured:
    """A certified network, image by image; `noisy` is the share of samples classified as the label."""

    index: Ints
    label: Ints
    prediction: Ints
    radius: Floats
    noisy: Floats
    samples: Ints
    seconds: Floats

    @property
    def certified_radius(self) -> Floats:
        """The radius where the answer is right, 0 elsewhere; its mean is the ACR."""
        return np.where(self.prediction == self.label, self.radius, 0.0)

    def contradicted(self, config: CertifyConfig) -> Ints:
        """Images with a right answer whose radius does not follow from their own votes. Wrong answers, whose
        votes are not here, count nowhere; where one class's votes do not tell the radius, there are none."""
        right = self.certified_radius != 0
        samples, share, radius = self.samples[right], self.noisy[right], self.radius[right]
        follows = np.full(len(radius), not config.budget.choice_sizes)
        for size in config.budget.choice_sizes:
            n = np.maximum(samples - size, 1)
            k = np.clip(np.round(share * n), 1, n)
            p_lower: Floats = special.betaincinv(k, n - k + 1, config.alpha)
            more = config.sigma * config.noise.unit_radius(p_lower) - radius  # which is cut after six digits
            follows |= (more >= -_ROUNDING) & (more <= 1e-6 + _ROUNDING) & (np.abs(k / n - share) <= 1e-6)
        found: Ints = self.index[right][~follows]
        return found


def read(ledger: Path, aggregation: str = ENSEMBLE) -> Measured:
    """A ledger, or a log of others; by another aggregation from the same votes."""
    log = read_log(ledger)
    log = log if aggregation == log.aggregation else recertified(log, aggregation=aggregation)
    noisy, samples = log.label_probability(), log.samples
    unknown = np.full(len(log), np.nan)
    return Measured(
        index=log.index,
        label=log.label,
        prediction=log.prediction,
        radius=np.array([float(format_radius(radius)) for radius in log.radius]),
        noisy=unknown if noisy is None else np.round(noisy, 6),
        samples=np.zeros(len(log), np.int64) if samples is None else samples,
        seconds=np.round(log.seconds, 6),
    )


def fit(run: Path) -> dict[str, Any]:
    """How well the training set was fitted: the last epoch's metrics, and the seconds of an epoch."""
    path = run / METRICS
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    if not lines:
        return {}
    last = lines[-1]
    facts = {
        "loss": float(np.mean(last["head_loss"])),
        "epoch_seconds": float(np.median([x["seconds"] for x in lines])),
    }
    if "easy_fraction" in last:
        facts["easy"] = float(np.mean(last["easy_fraction"]))
    return facts


def weights_hash(network: Path) -> str:
    return str(load_json(network / MANIFEST)["sha256"][WEIGHTS])


def rows_written(ledger: Path) -> int:
    """How many images are in a ledger that may still be growing."""
    path = ledger / _LEDGER
    return max(0, path.read_bytes().count(b"\n") - 1) if path.is_file() else 0


def rows_expected(ledger: Path) -> int:
    return len(read_manifest(ledger).expected or ()) if (ledger / FILE).is_file() else 0


def epochs_written(run: Path) -> int:
    path = run / METRICS
    return path.read_bytes().count(b"\n") if path.is_file() else 0


def seconds_written(artefact: Path) -> float:
    """What the epochs of a training or the images of a ledger took that are on the disk; both may still be
    growing, and a last line be torn."""
    seconds = 0.0
    with suppress(OSError, ValueError, LookupError, TypeError):
        for line in (artefact / METRICS).read_text().splitlines():
            seconds += float(json.loads(line)["seconds"])
    with suppress(OSError, ValueError, LookupError):
        _, *rows = (artefact / _LEDGER).read_text().splitlines()
        for row in rows:
            seconds += parse_time(row.split("\t")[5])
    return seconds
