"""Results of a study: stacked over seeds, saved and loaded to the digit, and never believed without votes."""

from __future__ import annotations

import gzip
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.studies.small import TEXT, start

from smoothheads.certify.bounds import max_radius
from smoothheads.certify.config import CertifyConfig
from smoothheads.cli import main
from smoothheads.errors import LedgerError, SmoothheadsError, StorageError
from smoothheads.provenance import processor
from smoothheads.report.table import to_csv, to_json, to_text
from smoothheads.results import read_log
from smoothheads.studies.figures import gains_figure, gains_over_loss, write_figures
from smoothheads.studies.page import study_page, write_study_page
from smoothheads.studies.plan import Joining
from smoothheads.studies.results import StudyResults, load, save
from smoothheads.studies.run import StudyRun
from smoothheads.studies.statistics import gains
from smoothheads.studies.tables import all_tables, costs, headline
from smoothheads.types import format_radius


def without_results(study: StudyResults) -> StudyResults:
    return replace(study, rows=tuple(replace(row, results=None) for row in study.rows))


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_saved_results_give_the_same_tables_and_bytes(small_results: StudyResults, tmp_path: Path) -> None:
    assert len(small_results.certified) == len(small_results.rows) == 6
    stack = small_results.arm("", 0.25, "some")
    assert stack.column().shape == (2, 4)
    save(small_results, tmp_path)
    before = files(tmp_path)
    again = load(tmp_path)
    save(again, tmp_path)
    assert files(tmp_path) == before
    for ours, theirs in zip(all_tables(small_results), all_tables(again), strict=True):
        assert to_json(ours) == to_json(theirs)
        assert to_csv(ours) == to_csv(theirs)


def test_saved_rows_are_logs_in_the_fields_format(small_results: StudyResults, tmp_path: Path) -> None:
    save(small_results, tmp_path)
    entry = json.loads((tmp_path / "study.json").read_text())["rows"][0]
    log = read_log(tmp_path / "rows" / f"{entry['file']}.tsv.gz")
    row = small_results.rows[0].results
    assert row is not None
    for name in ("index", "label", "prediction", "radius", "noisy", "samples"):
        assert np.array_equal(log[name], row[name]), name


def test_changed_rows_are_refused_and_foreign_files_stay(small_results: StudyResults, tmp_path: Path) -> None:
    save(small_results, tmp_path)
    row = next((tmp_path / "rows").iterdir())
    foreign = row.with_name("mine.tsv.gz")
    foreign.write_bytes(gzip.compress(gzip.decompress(row.read_bytes()).replace(b"0.", b"1.")))
    slower = [
        replace(each, results=replace(each.results, seconds=each.results.seconds + 1))
        for each in small_results.rows
        if each.results is not None
    ]
    before = {path.name for path in (tmp_path / "rows").iterdir()} - {foreign.name}
    save(replace(small_results, rows=tuple(slower)), tmp_path)
    after = {path.name for path in (tmp_path / "rows").iterdir()}
    assert (len(after), before & after, foreign.name in after) == (len(before) + 1, set(), True)
    save(small_results, tmp_path)
    row.write_bytes(foreign.read_bytes())
    with pytest.raises(LedgerError, match="was changed"):
        load(tmp_path)
    save(small_results, tmp_path)
    assert to_text(headline(load(tmp_path))) == to_text(headline(small_results))


@pytest.mark.parametrize("excess", [0.0, 1e-5, -1e-5])
def test_radius_that_does_not_follow_from_votes_is_refused(
    small_results: StudyResults, tmp_path: Path, excess: float
) -> None:
    """Whoever writes a folder can make names and checksums agree, but not the votes."""
    first, *others = small_results.rows
    assert first.results is not None
    best = format_radius(max_radius(50, 0.001, 0.25))  # 50 of the 50 samples that the study has
    ones = np.ones(len(first.results))
    forged = replace(
        first.results, prediction=first.results.label, noisy=ones, radius=ones * (float(best) + excess)
    )
    save(replace(small_results, rows=(replace(first, results=forged), *others)), tmp_path)
    if excess:
        with pytest.raises(LedgerError, match=f"do not follow from their votes.*image {forged.index[0]}"):
            load(tmp_path)
    else:
        assert load(tmp_path).rows[0].results is not None


def test_votes_of_one_class_give_the_radius_for_clopper_pearson_alone() -> None:
    radius = CertifyConfig(sigma=0.5, budget="radius", n=10_000)
    fixed = CertifyConfig(sigma=0.5, n=10_000)
    assert radius.plan.choice_sizes
    assert fixed.plan.choice_sizes == (100,)
    for name in ("table", "anytime"):
        assert not CertifyConfig(sigma=0.5, budget=name).plan.choice_sizes


def test_radii_are_never_rounded_up(small_results: StudyResults, tmp_path: Path) -> None:
    radius = math.nextafter(0.3 + 2e-6, 0)
    first = small_results.rows[0]
    assert first.results is not None
    results = replace(first.results, radius=np.full(len(first.results), radius))
    facts = replace(first.facts, certification="", imported="log.tsv")
    save(replace(small_results, rows=(replace(first, results=results, facts=facts),)), tmp_path)
    (row,) = load(tmp_path).certified
    assert row.results is not None
    assert row.results.radius.max() <= radius


def test_certified_rows_are_not_lost_to_another_study(
    small_results: StudyResults, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Rows were removed when a study with fewer arms, or other settings, was saved in their folder."""
    out = tmp_path / "kept"
    save(small_results, out)
    before = sorted((out / "rows").iterdir())
    fewer = TEXT.replace('[arms.some]\nrecipe = "digits-some"\nmodel.heads = 2\n', "")
    for text, lost in ((fewer, 2), (TEXT.replace("n = 50", "n = 60"), 6), (TEXT.replace("[0, 1]", "[0]"), 3)):
        with pytest.raises(StorageError, match=f"holds {lost} certified rows of another study"):
            start(text, tmp_path / "other", out)
        (tmp_path / "small.toml").write_text(text)
        command = ["study", str(tmp_path / "small.toml"), "--store", str(tmp_path / "new"), "--out", str(out)]
        assert main(command) == 2
        assert "Choose another folder" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()  # before anything is trained
    assert sorted((out / "rows").iterdir()) == before
    more = start(TEXT.replace("[0, 1]", "[0, 1, 2]"), tmp_path / "other", out)
    more.export()
    assert sorted((out / "rows").iterdir()) == before


@pytest.mark.parametrize(
    "text",
    [
        '{"format": "?"}',
        '{"format": "smoothheads-study/2", "rows": 3}',
        '{"format": "smoothheads-study/2"}',
        "[]",
    ],
)
def test_damaged_study_file_is_one_sentence(small_results: StudyResults, tmp_path: Path, text: str) -> None:
    save(small_results, tmp_path)
    (tmp_path / "study.json").write_text(text)
    with pytest.raises(SmoothheadsError, match="study"):
        load(tmp_path)


# What the tables say


def test_rows_note_the_processors_that_made_them(small_results: StudyResults) -> None:
    assert all(row.facts.processors == (processor(),) for row in small_results.rows)
    assert processor() in costs(small_results).notes[-1]


def test_rows_tell_the_size_of_their_network(small_results: StudyResults) -> None:
    sizes = {row.arm: row.facts.size for row in small_results.rows}
    single, pair, some = sizes["single"], sizes["pair"], sizes["some"]
    assert single is not None
    assert pair is not None
    assert some is not None
    assert pair.params == 2 * single.params
    assert pair.gmacs == 2 * single.gmacs < pair.gmacs_paper
    assert (single.head_fraction, pair.head_fraction) == (0.0, 1.0)
    assert some.head_fraction == pytest.approx(3 / 8)
    table = costs(small_results)
    assert table.rows[0][table.columns.index("params")].value == single.params
    unknown = tuple(replace(row, facts=replace(row.facts, size=None)) for row in small_results.rows)
    before = replace(small_results, rows=unknown)
    assert "–" in to_text(costs(before))


def test_arm_is_not_shown_at_a_sigma_that_it_does_not_have(tmp_path: Path) -> None:
    text = TEXT.replace("[0.25]", "[0.25, 0.5]").replace("[arms.some]\n", "[arms.some]\nsigmas = [0.5]\n")
    table = headline(start(text, tmp_path).results()["small"])
    both = [(arm, sigma) for sigma in ("0.25", "0.5") for arm in ("single", "pair")]
    assert [(row[0].text, row[1].text) for row in table.rows] == [*both, ("some", "0.5")]


def test_table_tells_how_many_training_images_were_easy(
    finished: StudyRun, small_results: StudyResults
) -> None:
    table = all_tables(small_results)[0]
    shown = {row[0].value: row[table.columns.index("easy")].text for row in table.rows}
    fractions: dict[str, list[float]] = {}
    for row in finished.plan.rows:
        for member in row.network.members if isinstance(row.network, Joining) else (row.network,):
            last = (finished.store.artefact(member) / "metrics.jsonl").read_text().splitlines()[-1]
            fractions.setdefault(row.arm, []).append(100 * np.mean(json.loads(last)["easy_fraction"]))
    assert shown == {arm: f"{np.mean(each):.0f}" for arm, each in fractions.items()}


# Pages and figures


def test_page_begins_with_what_was_found_and_needs_no_other_file(
    small_results: StudyResults, tmp_path: Path
) -> None:
    text = write_study_page(replace(small_results, title="<b>Small</b>"), tmp_path).read_text()
    assert "&lt;b&gt;Small&lt;/b&gt;" in text
    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org", "")
    assert text.index("in ACR (95 %") < text.index("<table")
    for gain in gains(small_results):
        assert f"{gain[-1].value:+.3f} in ACR" in text
    assert "Nothing can be compared yet." in study_page(without_results(small_results))


def test_figure_shows_every_gain_with_its_interval_and_seeds(
    small_results: StudyResults, tmp_path: Path
) -> None:
    study = replace(small_results, arms={"single": "$one", "pair": "$two", "some": "some"})
    names = {path.name for path in write_figures(study, tmp_path)}
    assert names == {"acr.png", "acr.svg", "gains.png", "gains.svg"}
    figure = gains_figure(study)
    assert figure is not None
    (axes,) = figure.axes
    drawn = [tuple(np.asarray(line.get_xdata(), float).tolist()) for line in axes.lines]
    found = [gain for *_, gain in gains(study)]
    assert len(found) == 2
    for gain in found:
        assert {tuple(gain.interval), (gain.value,), gain.per_seed} <= set(drawn)
    assert [text.get_text() for text in axes.get_yticklabels()] == ["$two − $one", "some − $one"]
    assert axes.get_title() == "sigma 0.25"
    assert gains_figure(without_results(study)) is None


def test_map_shows_gains_over_the_loss(small_results: StudyResults, tmp_path: Path) -> None:
    moved = [replace(row, setting="other", facts=replace(row.facts, loss=0.1)) for row in small_results.rows]
    both = replace(small_results, rows=(*small_results.rows, *moved))
    names = {path.name for path in write_figures(both, tmp_path)}
    assert names == {"acr.png", "acr.svg", "gains.png", "gains.svg"}
    (axes,) = gains_over_loss(both).axes
    shown = {float(y) for bar in axes.containers for y in bar[0].get_ydata()}
    assert shown == {gain.value for *_, gain in gains(both)}
    assert {"sigma 0.25", "other"} == {text.get_text() for text in axes.texts}


def test_figure_that_no_longer_holds_is_removed_if_it_is_ours(
    small_results: StudyResults, tmp_path: Path
) -> None:
    write_figures(small_results, tmp_path)
    (tmp_path / "gains.png").write_bytes(b"somebody's")
    write_figures(without_results(small_results), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["acr.png", "acr.svg", "gains.png"]


def test_results_are_saved_before_they_are_printed(
    small_results: StudyResults, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`study ... --out FOLDER | head -5` closes the pipe in the middle of a table."""
    save(small_results, tmp_path / "kept")
    file = tmp_path / "small.toml"
    file.write_text(TEXT)

    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("smoothheads.cli.study.print_tables", broken)
    main(["study", str(file), "--from", str(tmp_path / "kept"), "--out", str(tmp_path / "again")])
    assert load(tmp_path / "again").rows
