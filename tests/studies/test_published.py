"""The published values: whole, and as their derivations in the paper say."""

from __future__ import annotations

import csv
import json
from collections import Counter
from importlib import resources

import pytest

from smoothheads.cli import main
from smoothheads.objectives import TeachingConfig
from smoothheads.objectives.pace import scheduled_lambda
from smoothheads.studies import claims
from smoothheads.studies.costs import total
from smoothheads.studies.experiments import EXPERIMENTS, published_rows

COUNTS = {
    "table2": 3,
    "table3": 36,
    "table4": 22,
    "table5": 6,
    "table6": 6,
    "table7": 27,
    "table8": 9,
    "table9": 12,
}


@pytest.mark.parametrize("name", COUNTS)
def test_every_row_is_there_once(name: str) -> None:
    rows = published_rows(name)
    assert len(rows) == COUNTS[name]
    assert max(Counter((row.sigma, row.arm) for row in rows).values()) == 1


@pytest.mark.parametrize("name", ["table3", "table4", "table7", "table9"])
def test_every_acr_lies_between_the_riemann_sums_of_its_accuracies(name: str) -> None:
    for row in published_rows(name):
        columns = [column for column in row.values if column.startswith("ca_")]
        step = float(columns[1].removeprefix("ca_"))
        shares = [(row.number(column) or 0.0) / 100 for column in columns]
        ceiling = 3.811 * row.sigma
        lower = step * sum(shares[1:])
        upper = step * sum(shares) + max(0.0, ceiling - step * len(shares)) * shares[-1]
        assert lower - 6e-4 <= (row.number("acr") or 0) <= upper + 6e-4


def test_values_that_two_tables_print_are_equal() -> None:
    main_table = {(row.sigma, row.arm): row.values for row in published_rows("table3")}
    for name in ("table7", "table9"):
        for row in published_rows(name):
            for column, value in main_table.get((row.sigma, row.arm), {}).items():
                assert row.values.get(column, value) == value


def test_the_published_ratios() -> None:
    times = {row.arm: total(row.values["train_seconds_per_epoch"]) for row in published_rows("table5")}
    assert times["gaussian some"] / times["gaussian dnn5"] == pytest.approx(0.785, abs=5e-4)
    assert times["consistency some"] / times["consistency dnn5"] == pytest.approx(0.396, abs=5e-4)
    assert total("21.5 x3 + 1055.0") == pytest.approx(1119.5)


def test_every_claim_has_an_experiment_and_a_way_to_answer_it() -> None:
    found = claims.all_claims()
    assert list(found) == [f"C{i}" for i in range(1, 26)]
    for claim in found.values():
        assert claim.where in EXPERIMENTS
        assert claim.above or claim.close or claim.ratios
        structures = {row.structure for row in EXPERIMENTS[claim.where].rows}
        assert {name for pair in (*claim.above, *claim.close) for name in pair} <= structures


def test_the_schedules_of_lambda_are_those_of_the_formula() -> None:
    lines = (resources.files("smoothheads.studies") / "published" / "fig7.csv").read_text().splitlines()
    for line in csv.DictReader(lines):
        config = TeachingConfig(lambda_last=float(line.pop("lambda_last")))
        for column, text in line.items():
            if column.startswith("t"):
                found = scheduled_lambda(config, epoch=int(column[1:]), epochs=150, classes=10)
                assert found == pytest.approx(float(text), abs=1e-6)


@pytest.mark.parametrize(
    "form", ["--format text", "--format markdown", "--format latex", "--format csv", "--json"]
)
def test_published_values_need_no_run(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper", "table3", "--published", *form.split()]) == 0
    out = capsys.readouterr().out
    assert "0.537" in out
    if form == "--json":
        assert json.loads(out)[0]["rows"][2]["acr"] == 0.537


def test_experiments_are_listed_and_unknown_ones_suggested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["paper"]) == 0
    assert "table9" in capsys.readouterr().out
    assert main(["paper", "fig4", "table6", "fig4", "--published", "--json"]) == 0
    titles = [table["title"] for table in json.loads(capsys.readouterr().out)]
    assert [title.partition(":")[0] for title in titles] == ["fig4", "table6"]
    assert main(["paper", "tabel3", "--published"]) == 2
    assert "did you mean 'table3'" in capsys.readouterr().err
    assert main(["paper", "table3", "--scale", "smal"]) == 2
    assert "did you mean 'small'" in capsys.readouterr().err
