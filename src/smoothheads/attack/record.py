"""An attack on disk: a row per image in NAME.tsv, settings, verdict and curves in NAME.json."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from smoothheads.attack.outcome import Attacked, AttackOutcome, Claim
from smoothheads.config import load_json
from smoothheads.errors import ConfigError, LedgerError
from smoothheads.files import reserve_file, storage, write_stamped

FORMAT = "smoothheads-attack/1"
_KIND = '"smoothheads-attack/'
COLUMNS = ("idx", "label", "predict", "radius", "budget", "inside", "broken", "answer", "distance")
_NONE = "-"


def files(path: Path) -> tuple[Path, Path]:
    """Table and summary of the results called `path`, which may be either of them."""
    stem = path.stem if path.suffix in (".tsv", ".json") else path.name
    return path.with_name(f"{stem}.tsv"), path.with_name(f"{stem}.json")


def save(path: Path, outcome: AttackOutcome, facts: dict[str, Any], radii: Sequence[float]) -> None:
    """Both files are whole at any moment. `facts` is everything needed to repeat the attack."""
    table, about = files(path)
    about_text = json.dumps(summary(outcome, facts, radii), indent=2, sort_keys=True)
    write_stamped(about, f"{about_text}\n", _KIND)
    lines = ["\t".join(COLUMNS), *(_line(attacked, outcome.max_value) for attacked in outcome.attacked)]
    write_stamped(table, "\n".join(lines) + "\n", lines[0])


def claim(path: Path) -> None:
    """Raises StorageError unless results may be written there."""
    for file, stamp in zip(files(path), ("\t".join(COLUMNS), _KIND), strict=True):
        reserve_file(file, stamp)


def load(path: Path) -> tuple[dict[str, Any], list[Attacked]]:
    """Facts and rows of an earlier attack, nothing of either where there is none."""
    table, about = files(path)
    if not about.exists():
        return {}, []
    with storage(table):
        data = table.read_bytes() if table.exists() else b""
    try:
        text = data.decode()
        facts = dict(load_json(about)["facts"])
        return facts, [_parse(line) for line in text.splitlines()[1:]]
    except (ConfigError, KeyError, TypeError, ValueError) as error:
        raise LedgerError(f"an attack in {table}", str(error), "start afresh or use another name") from error


def summary(outcome: AttackOutcome, facts: dict[str, Any], radii: Sequence[float]) -> dict[str, Any]:
    """Plain values for JSON: `certified` is the lower curve at the radii, `attacked` the upper one."""
    return {
        "format": FORMAT,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "facts": facts,
        "images": len(outcome.attacked),
        "claims": sum(not attacked.claim.abstained for attacked in outcome.attacked),
        "violations": [attacked.claim.index for attacked in outcome.violations],
        "level": outcome.level,
        "p_value": outcome.p_value,
        "refuted": outcome.refuted,
        "radii": list(radii),
        "certified": outcome.certified_accuracy(radii).tolist(),
        "attacked": outcome.empirical_accuracy(radii).tolist(),
    }


def _line(attacked: Attacked, q: int) -> str:
    claim = attacked.claim
    distance = None if attacked.broken is None else f"{math.sqrt(attacked.broken) / q:.6f}"
    claimed = (claim.index, claim.label, claim.prediction, repr(claim.radius))
    seen = (attacked.budget, attacked.inside, attacked.broken, attacked.answer, distance)
    return "\t".join(_NONE if value is None else str(value) for value in (*claimed, *seen))


def _parse(line: str) -> Attacked:
    words = line.split("\t")
    if len(words) != len(COLUMNS):
        raise ValueError(f"a row of {len(words)} columns")
    index, label, prediction = (int(word) for word in words[:3])
    inside, broken, answer = (None if word == _NONE else int(word) for word in words[5:8])
    return Attacked(Claim(index, label, prediction, float(words[3])), int(words[4]), inside, broken, answer)
