"""The ledgers, logs and training runs of the served folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from smoothheads.results import read_log
from smoothheads.serve import logs
from smoothheads.serve.images import cached
from smoothheads.serve.runs import RunIndex

from .conftest import Client

ODD = "<img src=x onerror=alert(1)>.tsv"
PAIR = ("id", "some/ledger-fixed"), ("id", "some/ledger-table")


def test_overview_names_what_is_broken(client: Client) -> None:
    seen = client.get("/v1/runs").json()
    rows = {row["id"]: row for row in seen["ledgers"]}
    assert rows["some/ledger-fixed"]["images"] == rows["some/ledger-fixed"]["expected"]
    assert rows[ODD]["acr"]["value"] == 0.5
    assert "manifest" in rows["broken"]["error"]
    assert str(Path(__file__).parents[2]) not in json.dumps(seen)
    assert [run["id"] for run in seen["trainings"]] == ["some"]
    assert seen["trainings"][0]["last"]["loss"] > 0
    assert client.get("/v1/models").json()["models"] == ["some"]


def test_curves_have_intervals_and_tables(client: Client) -> None:
    data = client.get("/v1/runs/curves", *PAIR).json()
    assert [curve["id"] for curve in data["curves"]] == [value for _, value in PAIR]
    for curve in data["curves"]:
        for low, middle, high in zip(curve["low"], curve["accuracy"], curve["high"], strict=True):
            assert low <= middle <= high
    assert len(data["tables"]) >= 2


def test_curves_downloads(client: Client) -> None:
    assert client.get("/v1/runs/curves.png", *PAIR).body.startswith(b"\x89PNG")
    assert client.get("/v1/runs/curves.csv", *PAIR).body.startswith(
        b"log,radius,certified_accuracy,low,high\n"
    )
    latex = client.get("/v1/runs/curves.tex", *PAIR)
    assert rb"\begin{tabular}" in latex.body
    assert latex.headers["content-disposition"] == 'attachment; filename="certified-accuracy.tex"'


def test_compare_two_ledgers(client: Client) -> None:
    data = client.get("/v1/runs/compare", *PAIR).json()
    assert data["images"] > 0
    assert data["differ"] >= data["gain"]["better"] + data["gain"]["worse"]
    assert len(data["rows"]) == data["differ"]
    assert client.get("/v1/runs/compare", PAIR[0]).status == 422


def test_image_has_the_votes_of_every_head(client: Client, run: Path) -> None:
    index = int(read_log(run / "ledger-fixed").index[0])
    image = client.get("/v1/runs/image", PAIR[0], ("index", index)).json()["logs"][0]["image"]
    aggregations = {votes["aggregation"]: votes["counts"] for votes in image["votes"]}
    assert "ensemble" in aggregations
    assert all(sum(counts) == image["n"] for counts in aggregations.values())
    assert client.get("/v1/runs/picture", PAIR[0], ("index", index)).body.startswith(b"\x89PNG")
    assert client.get("/v1/runs/image", PAIR[0], ("index", 10**9)).status == 404


@pytest.mark.parametrize("name", ["../some/ledger-fixed", "/etc", "", "nothing", "broken", "some"])
def test_name_is_no_path(client: Client, name: str) -> None:
    assert client.get("/v1/runs/curves", ("id", name)).status in (404, 422)


def test_attack_table_is_no_ledger(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(run / "ledger-fixed", folder / "ledger")
    (folder / "attack.tsv").write_text("idx\tlabel\tpredict\tradius\tbudget\tinside\n0\t1\t1\t0.5\t1\t0\n")
    assert list(RunIndex(folder).contents().ledgers) == ["ledger"]


def test_curves_have_a_table_of_every_class(client: Client) -> None:
    tables = client.get("/v1/runs/curves", *PAIR).json()["tables"]
    every = next(table for table in tables if table["title"] == "Every class")
    assert sum(int(row[1]["text"]) for row in every["rows"]) == 6
    assert len(every["columns"]) == 6


def test_training_history_has_validation_accuracy(client: Client) -> None:
    (training,) = client.get("/v1/runs").json()["trainings"]
    assert all(0 <= line["validation_accuracy"] <= 1 for line in training["history"])


def test_growing_ledger_is_read_again(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(run / "ledger-fixed", folder / "ledger")
    table = folder / "ledger" / "ledger.tsv"
    lines = table.read_text().splitlines(keepends=True)
    table.write_text("".join(lines[:3]) + lines[3][:10])  # a torn line, as a reader meets it
    read, index = cached(read_log, logs.stamp), RunIndex(folder)
    (name, path), *_ = index.contents().ledgers.items()
    before = logs.row(name, path, read)
    table.write_text("".join(lines))
    after = logs.row(name, path, read)
    assert (before["images"], before["live"]) == (2, True)
    assert (after["images"], after["live"]) == (len(lines) - 1, False)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("=1+1", "'=1+1"),
        ("-x", "'-x"),
        ("@a", "'@a"),
        ("some", "some"),
        ("-0.5", "-0.5"),
        ("-1e-05 0.2",) * 2,
    ],
)
def test_no_formula(text: str, written: str) -> None:
    from smoothheads.report.table import no_formula

    assert no_formula(text) == written


def test_study_tables_and_downloads(run: Path, tmp_path: Path) -> None:
    from smoothheads.errors import LedgerError
    from smoothheads.studies.results import RowFacts, StudyResults, StudyRow, load, save

    log, facts = read_log(run / "ledger-fixed"), RowFacts(imported="log")
    study = StudyResults(
        name="x",
        title="Does <b>it</b> help?",
        arms={"a": "one", "b": "two"},
        radii=(0.0, 0.25),
        differences=(("b", "a"),),
        rows=tuple(StudyRow("", 0.5, arm, 0, log, facts) for arm in "ab"),
    )
    save(study, tmp_path / "kept")
    (name, folder), *_ = RunIndex(tmp_path).contents().studies.items()
    data = logs.study(load(folder))
    assert (name, data["title"]) == ("kept", "Does <b>it</b> help?")
    assert [row[0]["text"] for row in data["tables"][0]["rows"]] == ["one", "two"]
    assert r"\begin{tabular}" in logs.study_file(study, "tex").decode()
    assert logs.study_file(study, "csv").decode().splitlines()[1].startswith("a,")
    assert logs.study_file(study, "png").startswith(b"\x89PNG")
    for damaged in ('{"format": "?"}', '{"format": "smoothheads-study/2", "rows": 3}'):
        (folder / "study.json").write_text(damaged)
        with pytest.raises(LedgerError, match="study"):
            load(folder)
