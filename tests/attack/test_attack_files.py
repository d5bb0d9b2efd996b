from __future__ import annotations

import json
from pathlib import Path

import pytest

from smoothheads.attack.outcome import Attacked, AttackOutcome, Claim, load_attack, save_attack
from smoothheads.errors import LedgerError
from smoothheads.types import ABSTAIN

ATTACKED = (
    Attacked(Claim(3, 1, 1, 0.123456789012345), 991, 990, 1024, 0),
    Attacked(Claim(5, 1, ABSTAIN, 0.0), -1),
    Attacked(Claim(8, 2, 2, 1.0), 65024, 65024),
    Attacked(Claim(9, 2, 2, 1.0), 65024, 65024, 65, 7),
)
OUTCOME = AttackOutcome(ATTACKED, 255, 0.003)
FACTS = {"settings": {"seed": 0}, "weights": "abc"}


def test_rows_and_facts_come_back_as_they_were(tmp_path: Path) -> None:
    save_attack(tmp_path / "new" / "attack", OUTCOME, FACTS, [0.0, 0.5])
    assert load_attack(tmp_path / "new" / "attack") == (FACTS, list(ATTACKED))
    assert {path.name for path in (tmp_path / "new").iterdir()} == {"attack.tsv", "attack.json"}


def test_the_files_say_what_was_found(tmp_path: Path) -> None:
    save_attack(tmp_path / "attack", OUTCOME, FACTS, [0.0, 0.5])
    head, first, second, *_ = (tmp_path / "attack.tsv").read_text().splitlines()
    row = dict(zip(head.split("\t"), first.split("\t"), strict=True))
    assert row["distance"] == "0.125490"  # 32 / 255
    assert second.split("\t")[4:] == ["-1", "-", "-", "-", "-"]
    said = json.loads((tmp_path / "attack.json").read_text())
    assert said["violations"] == [9]
    assert said["p_value"] == pytest.approx(1 - 0.997**4)
    assert (said["images"], said["claims"], said["refuted"]) == (4, 3, False)
    assert said["certified"] == [0.75, 0.5]
    assert said["attacked"] == [0.75, 0.25]


def test_a_name_with_a_dot_keeps_it(tmp_path: Path) -> None:
    save_attack(tmp_path / "sigma_0.25", OUTCOME, FACTS, [0.0])
    assert {path.name for path in tmp_path.iterdir()} == {"sigma_0.25.tsv", "sigma_0.25.json"}
    for name in ("sigma_0.25", "sigma_0.25.tsv", "sigma_0.25.json"):
        assert load_attack(tmp_path / name) == (FACTS, list(ATTACKED))


def test_nothing_there_is_nothing_done(tmp_path: Path) -> None:
    assert load_attack(tmp_path / "attack") == ({}, [])


def test_settings_without_rows_are_a_run_that_has_just_begun(tmp_path: Path) -> None:
    save_attack(tmp_path / "attack", OUTCOME, FACTS, [0.0])
    (tmp_path / "attack.tsv").unlink()
    assert load_attack(tmp_path / "attack") == (FACTS, [])


@pytest.mark.parametrize("damage", ["1\t2", "a\t1\t1\t0.5\t3\t-\t-\t-\t-", "1\t1\t1\t0.5\t-\t-\t-\t-\t-"])
def test_damaged_results_are_named(tmp_path: Path, damage: str) -> None:
    save_attack(tmp_path / "attack", OUTCOME, FACTS, [0.0])
    table = tmp_path / "attack.tsv"
    table.write_text(table.read_text() + damage + "\n")
    with pytest.raises(LedgerError, match=r"attack\.tsv"):
        load_attack(tmp_path / "attack")
    (tmp_path / "attack.json").write_text("{")
    with pytest.raises(LedgerError, match="JSON"):
        load_attack(tmp_path / "attack")
