"""What attacks found: per image, against alpha, as a curve above the certified one, and on the disk.

An attack is kept as a row per image in NAME.tsv, and settings, verdict and curves in NAME.json.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from smoothheads.certify.bounds import squared_grid_budget
from smoothheads.config import load_json
from smoothheads.errors import ConfigError, LedgerError
from smoothheads.files import reserve_file, storage, write_stamped
from smoothheads.types import ABSTAIN

Floats = NDArray[np.float64]

RHO = 0.001  # the probability that a sound ledger is called refuted
FORMAT = "smoothheads-attack/1"
COLUMNS = ("idx", "label", "predict", "radius", "budget", "inside", "broken", "answer", "distance")
_KIND = '"smoothheads-attack/'
_NONE = "-"


@dataclass(frozen=True, slots=True)
class Claim:
    """A row of a ledger: no grid image closer than `radius` gets another class than `prediction`."""

    index: int
    label: int
    prediction: int
    radius: float

    @property
    def correct(self) -> bool:
        return self.prediction == self.label

    @property
    def abstained(self) -> bool:
        return self.prediction == ABSTAIN


@dataclass(frozen=True, slots=True)
class Attacked:
    """A claim and what came of attacking it; squared distances are those of grid integers."""

    claim: Claim
    budget: int
    """The largest squared distance that the claim covers; -1 for an abstention, which claims nothing."""
    inside: int | None = None
    """Squared distance of the farthest attacked image inside; None where nothing was claimed."""
    broken: int | None = None
    """Squared distance of the nearest image that was found to get another class; None if none was found."""
    answer: int | None = None
    """That other class."""

    @property
    def violated(self) -> bool:
        """The other class was found inside the ball."""
        return self.broken is not None and self.broken <= self.budget


@dataclass(frozen=True, slots=True)
class AttackOutcome:
    """All attacked images of a ledger. Abstentions are included: alpha is the probability of a wrong claim
    for any image, not for those that got one."""

    attacked: tuple[Attacked, ...]
    max_value: int
    level: float
    """The most that a sound certification lets the probability of a violation be, per image: its alpha and
    that of every judgement inside."""

    @property
    def violations(self) -> tuple[Attacked, ...]:
        return tuple(image for image in self.attacked if image.violated)

    @property
    def p_value(self) -> float:
        """Exact binomial test: the probability of as many violations if every certificate keeps its alpha."""
        count = len(self.violations)
        if count == 0:
            return 1.0
        # P(Bin(images, level) >= violations)
        return float(special.bdtrc(count - 1, len(self.attacked), min(self.level, 1.0)))

    @property
    def refuted(self) -> bool:
        return self.p_value < RHO

    def certified_accuracy(self, radii: Sequence[float]) -> Floats:
        """Returns the fraction of images that are correct and certified that far: the lower curve."""
        claims = [image.claim for image in self.attacked]
        return np.array([np.mean([c.correct and c.radius >= r for c in claims]) for r in radii])

    def empirical_accuracy(self, radii: Sequence[float]) -> Floats:
        """Returns the fraction of images that are correct and were not broken closer than r: the upper curve.

        An abstention is not correct; radii beyond those attacked keep the last value.
        """
        # An image stands at radius r if no image inside that ball was found to get another class.
        budgets = [squared_grid_budget(r, self.max_value) for r in radii]
        correct = [image for image in self.attacked if image.claim.correct]
        standing = [
            sum(image.broken is None or image.broken > budget for image in correct) for budget in budgets
        ]
        return np.array(standing, dtype=np.float64) / max(len(self.attacked), 1)

    def summary(self, facts: dict[str, Any], radii: Sequence[float]) -> dict[str, Any]:
        """Returns plain values for JSON: `certified` is the lower curve, `attacked` the upper."""
        return {
            "format": FORMAT,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "facts": facts,
            "images": len(self.attacked),
            "claims": sum(not attacked.claim.abstained for attacked in self.attacked),
            "violations": [attacked.claim.index for attacked in self.violations],
            "level": self.level,
            "p_value": self.p_value,
            "refuted": self.refuted,
            "radii": list(radii),
            "certified": self.certified_accuracy(radii).tolist(),
            "attacked": self.empirical_accuracy(radii).tolist(),
        }


def attack_files(path: Path) -> tuple[Path, Path]:
    """Returns table and summary of the results called `path`, which may be either of them."""
    stem = path.stem if path.suffix in (".tsv", ".json") else path.name
    return path.with_name(f"{stem}.tsv"), path.with_name(f"{stem}.json")


def reserve_attack(path: Path) -> None:
    """Raises StorageError unless results may be written there."""
    for file, stamp in zip(attack_files(path), ("\t".join(COLUMNS), _KIND), strict=True):
        reserve_file(file, stamp)


def save_attack(path: Path, outcome: AttackOutcome, facts: dict[str, Any], radii: Sequence[float]) -> None:
    """Writes table and summary, each of them whole at any moment."""
    table, about = attack_files(path)
    text = json.dumps(outcome.summary(facts, radii), indent=2, sort_keys=True)
    write_stamped(about, f"{text}\n", _KIND)
    lines = ["\t".join(COLUMNS), *(_line(attacked, outcome.max_value) for attacked in outcome.attacked)]
    write_stamped(table, "\n".join(lines) + "\n", lines[0])


def load_attack(path: Path) -> tuple[dict[str, Any], list[Attacked]]:
    """Returns facts and rows of an earlier attack, nothing of either where there is none."""
    table, about = attack_files(path)
    if not about.exists():
        return {}, []
    with storage(table):
        data = table.read_bytes() if table.exists() else b""
    try:
        text = data.decode()
        facts = dict(load_json(about)["facts"])
        return facts, [_parse(line) for line in text.splitlines()[1:]]
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"{table} is damaged ({error}); start afresh or use another name.") from error


def _line(attacked: Attacked, q: int) -> str:
    # The distance in pixel units is for people; the squared integers are exact.
    claim = attacked.claim
    distance = None if attacked.broken is None else f"{math.sqrt(attacked.broken) / q:.6f}"
    claimed = (claim.index, claim.label, claim.prediction, repr(claim.radius))
    found = (attacked.budget, attacked.inside, attacked.broken, attacked.answer, distance)
    return "\t".join(_NONE if value is None else str(value) for value in (*claimed, *found))


def _parse(line: str) -> Attacked:
    words = line.split("\t")
    if len(words) != len(COLUMNS):
        raise ValueError(f"a row of {len(words)} columns")
    index, label, prediction = (int(word) for word in words[:3])
    inside, broken, answer = (None if word == _NONE else int(word) for word in words[5:8])
    return Attacked(Claim(index, label, prediction, float(words[3])), int(words[4]), inside, broken, answer)
