"""Experiments at every scale, claims answered, logs of others as rows."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from tests.studies.small import Inline

from smoothheads.cli import main
from smoothheads.errors import ConfigError, LedgerError
from smoothheads.report import plots
from smoothheads.report.table import Table, to_csv, to_json, to_latex, to_text
from smoothheads.results import Results
from smoothheads.results.metrics import MedianInterval
from smoothheads.studies import claims, costs, diagnoses, experiments, jobs, paper, tables
from smoothheads.studies.figures import acr_figure
from smoothheads.studies.plan import join_plans, make_plan
from smoothheads.studies.results import NetworkSize, RowFacts, StudyResults, StudyRow, load, save

TRAINED = [each for each in experiments.EXPERIMENTS.values() if each.trained]


@pytest.mark.parametrize("scale", experiments.SCALES)
@pytest.mark.parametrize("experiment", TRAINED, ids=lambda each: each.id)
def test_every_published_row_is_an_arm_that_can_be_configured(
    experiment: experiments.Experiment, scale: str
) -> None:
    study = experiments.study(experiment, experiments.scale(scale), root="/data")
    for arm in study.arms:
        for sigma in arm.sigmas:
            study.run_config(arm, "", sigma, 0)
    assert {row.arm for row in experiment.rows} <= {arm.name for arm in study.arms}


def test_a_mistake_in_a_scale_is_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    mistakes = (
        ("title = [", "is not valid TOML"),
        ('title = "x"\nsede = [1]', "did you mean 'seeds'"),
        ('title = "x"\n[experiments.tabel6]\nsigmas = [0.25]', "did you mean 'table6'"),
        ('title = "x"\n[experiments.table6]\nsigma = [0.25]', "experiments.table6.*did you mean 'sigmas'"),
    )
    for text, said in mistakes:
        file.write_text(text)
        with pytest.raises(ConfigError, match=said):
            experiments.scale(str(file))


def test_what_experiments_share_is_made_once() -> None:
    scale = experiments.scale("smoke")
    studies = {each.id: experiments.study(each, scale) for each in TRAINED}
    plans = {name: make_plan(study, lambda _: "data", "images") for name, study in studies.items()}
    joined, parts = join_plans(plans)
    assert len(joined.items) < sum(len(plan.items) for plan in plans.values()) / 1.3
    assert {name: len(plan.rows) for name, plan in parts.items()} == {
        name: len(plan.rows) for name, plan in plans.items()
    }
    again, _ = join_plans(parts)
    assert again == joined
    single = next(row for row in parts["table7"].rows if (row.arm, row.sigma) == ("gaussian single", 0.5))
    assert single.aggregation == "head-1"  # of the ensemble of ten in table3


def study_of(gains: dict[str, float]) -> StudyResults:
    """Three seeds of 100 images; every arm's radii are its gain above a common noise."""
    rng = np.random.default_rng(0)
    common = rng.uniform(0.2, 0.8, (3, 100))
    images = np.arange(100)
    rows = [
        StudyRow(
            "",
            0.25,
            arm,
            seed,
            Results(
                name=arm,
                index=images,
                label=images % 10,
                prediction=images % 10,
                radius=common[seed] + value,
                seconds=common[seed],
                noisy=common[seed],
                samples=images,
            ),
        )
        for arm, value in gains.items()
        for seed in range(3)
    ]
    return StudyResults(
        name="table3", title="made up", arms={arm: arm for arm in gains}, radii=(0.0,), rows=tuple(rows)
    )


def judged(name: str, study: StudyResults, ratios: costs.Ratios) -> str:
    claim = claims.all_claims()[name]
    return claims.verdict(claim, list(claims.evidence(claim, study, ratios)))


def test_a_claim_is_confirmed_contradicted_or_not_measured() -> None:
    found = study_of({"gaussian single": 0.0, "gaussian dnn5": 0.1, "gaussian some": 0.05})
    known = claims.all_claims()
    verdicts = {
        name: claims.verdict(known[name], list(claims.evidence(known[name], found, {})))
        for name in ("C1", "C2", "C3", "C4")
    }
    assert verdicts == {"C1": "contradicted", "C2": "confirmed", "C3": "confirmed", "C4": "not measured"}


def test_the_summary_says_what_is_compared_where_a_claim_rests_on_several_pairs() -> None:
    heads = {"gaussian single-m2": 0.0, "gaussian some-2": 0.1, "gaussian some-3": 0.2}
    text = to_text(claims.summary({"fig4": study_of(heads)}, {}))
    assert "some-2 − single-m2, gaussian 0.25: +0.100" in text
    assert "some-3 − some-2, gaussian 0.25: +0.100" in text


def test_the_picture_of_the_claims_has_a_line_for_every_comparison_of_radii() -> None:
    found = study_of({"gaussian single": 0.0, "gaussian dnn5": 0.1, "gaussian some": 0.05})
    drawn = claims.figure({"table3": found})
    assert drawn is not None
    labels = [label.get_text() for label in drawn.axes[0].get_yticklabels()]
    pairs = ("C1 some − dnn5", "C2 some − single", "C3 dnn5 − single")
    assert labels == ["table3", *(f"{pair}, gaussian 0.25" for pair in pairs)]
    assert claims.figure({"table3": replace(found, rows=())}) is None


def test_a_verdict_on_one_seed_says_so() -> None:
    several = study_of({"gaussian single": 0.0, "gaussian dnn5": 0.1, "gaussian some": 0.05})
    one = replace(several, rows=tuple(each for each in several.rows if each.seed == 0))
    claim = claims.all_claims()["C3"]
    assert claims.verdict(claim, list(claims.evidence(claim, several, {}))) == "confirmed"
    assert claims.verdict(claim, list(claims.evidence(claim, one, {}))) == "confirmed (one seed)"
    one = replace(one, differences=(("gaussian some", "gaussian single"),))
    assert "one seed" in to_text(tables.differences(one))
    for found, said, colour in (
        (several, "", plots.COLOURS[0]),
        (one, "\n(open: one seed, over images)", "white"),
    ):
        drawn = claims.figure({"table3": found})
        assert drawn is not None
        assert drawn.get_supxlabel() == f"gain in ACR; 95 % over seeds and images{said}"
        marks = [line for line in drawn.axes[0].lines if line.get_marker() == "o"]
        assert colour in {mark.get_markerfacecolor() for mark in marks}


def test_nearly_equal_is_within_a_twentieth_and_cost_is_a_ratio() -> None:
    near = study_of({"gaussian some": 0.5, "gaussian some-dnn5": 0.51})
    far = study_of({"gaussian some": 0.5, "gaussian some-dnn5": 0.9})
    assert judged("C23", near, {}) == "confirmed"
    assert judged("C23", far, {}) == "contradicted"
    ratios = {("certify", "gaussian", "some", "dnn5"): MedianInterval(0.35, 0.33, 0.38)}
    assert judged("C8", near, ratios) == "confirmed"


def sized(study: StudyResults, sizes: dict[str, NetworkSize]) -> StudyResults:
    return replace(study, rows=tuple(replace(row, facts=RowFacts(size=sizes[row.arm])) for row in study.rows))


def size(params: int = 0, gmacs: float = 0.0, head_fraction: float = 0.0) -> NetworkSize:
    return NetworkSize(params=params, gmacs=gmacs, gmacs_paper=gmacs, head_fraction=head_fraction)


def test_capacity_is_counted_in_arithmetic_and_in_parameters() -> None:
    found = sized(
        study_of({"gaussian some": 0.1, "gaussian dnn5": 0.0}),
        {"gaussian some": size(6_995_138, 0.594), "gaussian dnn5": size(8_653_570, 1.28)},
    )
    claim = claims.all_claims()["C7"]
    verdicts = {item.cell: item.verdict for item in claims.evidence(claim, found, {})}
    assert verdicts == {"gflops, gaussian": "confirmed", "params, gaussian": "contradicted"}
    measured = {("gflops", "gaussian", "some", "dnn5"): MedianInterval(0.6, 0.6, 0.6)}
    first = next(iter(claims.evidence(claim, found, measured)))
    assert (first.gain.value, first.verdict) == (
        0.6,
        "contradicted",
    )  # measured at the paper's size: goes before


def test_networks_of_another_size_have_their_own_numbers() -> None:
    """A head of ResNet-14 has 21 or 36 % of the layers where that of ResNet-110 has 17 or 34."""
    shares = {"single": 0.0, "some-mid": 3 / 14, "some": 5 / 14, "dnn5": 1.0, "some-dnn5": 1.0}
    found = sized(
        study_of({f"gaussian {name}": share for name, share in shares.items()}),
        {f"gaussian {name}": size(head_fraction=share) for name, share in shares.items()},
    )
    experiment = experiments.get("fig3")
    table = paper.comparison(experiment, found, complete=False)
    cells = {row[0].text: row[table.columns.index("share")] for row in table.rows}
    assert (cells["gaussian some-mid"].text, cells["gaussian some-mid"].error) == ("21", "(17)")
    assert (cells["gaussian some"].text, cells["gaussian some"].error) == ("36", "(34)")
    drawn = paper.figure(experiment, found)
    assert drawn is not None
    axes = drawn.axes[0]
    curve = next(line for line in axes.lines if line.get_label() == "SOME, sigma 0.25")
    assert np.allclose(curve.get_xdata(), [0, 300 / 14, 500 / 14, 100], atol=1)
    level = next(line for line in axes.lines if line.get_label() == "5 DNNs")
    assert np.allclose(level.get_ydata(), found.arm("", 0.25, "gaussian dnn5").acr.value)


def test_a_member_of_an_ensemble_is_counted_as_one_network() -> None:
    study = experiments.study(experiments.get("table4"), experiments.scale("smoke"))
    plan = make_plan(study, lambda _: "data", "images")
    sizes = {row.arm: jobs.network_size(row.model, row.network.data) for row in plan.rows}
    one, ensemble = sizes["consistency single2"], sizes["consistency dnn3"]
    assert ensemble.params == 3 * one.params
    assert (one.head_fraction, ensemble.head_fraction) == (0.0, 1.0)


def test_sigmas_stand_side_by_side_and_what_names_share_above_them() -> None:
    titles = {"a": "Gaussian: single", "b": "Gaussian: SOME", "c": "plain"}
    found = study_of(dict.fromkeys(titles, 0.1))
    others = tuple(replace(each, sigma=0.5) for each in found.rows if each.arm != "c")
    both = replace(found, arms=titles, rows=(*found.rows, *others))
    figure = acr_figure(both)
    assert [axes.get_title() for axes in figure.axes] == ["sigma 0.25", "sigma 0.5"]
    labels = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert labels == ["plain", "Gaussian", "single", "SOME"]
    assert [len(axes.lines) for axes in figure.axes] == [3 * 3, 2 * 3]  # interval, mean and seeds of each arm
    many = tuple(replace(each, sigma=each.sigma + k) for k in range(4) for each in found.rows)
    labels = [
        text.get_text()
        for text in acr_figure(replace(found, arms=titles, rows=many)).axes[0].get_yticklabels()
    ]
    assert labels[:5] == ["sigma 0.25, Gaussian", "single", "SOME", "sigma 0.25", "plain"]


def test_what_both_arms_begin_with_is_said_once() -> None:
    titles = {"a": "Gaussian: SOME", "b": "Gaussian: single", "c": "Consistency: single", "d": "single"}
    found = replace(study_of({}), arms=titles)
    shown = [tables.pair_title(found, *pair) for pair in ("ab", "ac", "ad", "db")]
    assert shown == [
        "Gaussian: SOME − single",
        "Gaussian: SOME − Consistency: single",
        "Gaussian: SOME − single",
        "single − Gaussian: single",
    ]


def test_a_network_that_gives_up_classes_is_seen() -> None:
    """Of two networks with the same ACR one is never right on six classes; seeds are averaged."""
    found = study_of({"gaussian single": 0.0, "gaussian some": 0.0})
    given_up = []
    for each in found.rows:
        assert each.results is not None
        kept = 4 if each.seed else 5
        right = np.where(each.results.label < kept, each.results.label, -1)
        lost = replace(each, results=replace(each.results, prediction=right))
        given_up.append(lost if each.arm == "gaussian some" else each)
    found = replace(found, rows=tuple(given_up))
    for table in (tables.headline(found), paper.comparison(experiments.get("table3"), found, complete=False)):
        column = table.columns.index("classes")
        assert [row[column].text for row in table.rows] == ["10/10", "4.3/10"]
        assert any(note.startswith("classes:") for note in table.notes)


def test_ratios_have_no_sign() -> None:
    ratios = {("certify", "gaussian", "some", "dnn5"): MedianInterval(0.35, 0.33, 0.38)}
    shown = to_text(claims.table("table2", replace(study_of({}), rows=()), ratios))
    assert "0.3500" in shown
    assert "[0.3300, 0.3800]" in shown
    assert "+0.35" not in shown


def test_the_page_shows_the_rows_that_were_measured() -> None:
    experiment = experiments.get("table3")
    found = study_of({"gaussian single": 0.0, "gaussian some": 0.3})
    full, short = (paper.comparison(experiment, found, complete=complete) for complete in (True, False))
    assert len(full.rows) == len(experiment.rows)
    assert [row[0].text for row in short.rows] == ["gaussian single", "gaussian some"]
    assert full.columns[-1] == "2.25"
    assert short.columns[-1] == "1.00"  # radii reach 1.1 here, in print 0.75
    assert any(f"The paper has {len(experiment.rows) - 2} rows more" in note for note in short.notes)


def test_published_values_stand_beside_ours_in_every_form() -> None:
    found = study_of({"gaussian some": 0.3})
    table = paper.comparison(experiments.get("table3"), found, complete=False)
    assert "(0.537)" in to_text(table)
    assert r"{\scriptsize (0.537)}" in to_latex(table)
    (row,) = to_json(table)["rows"]
    radius, error = found.arm("", 0.25, "gaussian some").acr
    assert row["ACR"] == {"value": radius, "standard_error": error, "published": 0.537}
    assert row["0.25"]["published"] == 71.6
    assert row["gflops"] == {"value": None, "published": 0.594}
    (line,) = csv.DictReader(to_csv(table).splitlines())
    assert float(line["ACR"]) == radius
    assert float(line["ACR standard error"]) == error
    assert (line["ACR published"], line["0.25 published"]) == ("0.537", "71.6")


def test_a_row_that_is_missing_is_not_replaced_by_that_of_another_base() -> None:
    """SOME on Consistency failed: SOME on Gaussian was compared with five networks on Consistency."""
    found = study_of(
        {"gaussian some": 0.1, "gaussian dnn5": 0.0, "consistency dnn5": 0.9, "macer single": 0.9}
    )
    for name, cells in (("C1", ["gaussian 0.25"]), ("C2", [])):
        assert [each.cell for each in claims.evidence(claims.all_claims()[name], found, {})] == cells


def test_the_log_of_another_is_no_pair_with_our_own_row() -> None:
    found = study_of({"gaussian some": 0.3, "gaussian dnn5": 0.0})
    ours, logs = (
        [replace(each, facts=facts) if each.arm == "gaussian some" else each for each in found.rows]
        for facts in (RowFacts(), RowFacts(imported="log.tsv"))
    )
    claim = claims.all_claims()["C1"]
    assert len(list(claims.evidence(claim, replace(found, rows=tuple(ours)), {}))) == 1
    assert not list(claims.evidence(claim, replace(found, rows=tuple(logs)), {}))


def test_a_structure_that_only_another_base_has_is_compared_with_that() -> None:
    found = study_of({"gaussian drt3": 0.0, "smoothmix some": 0.1})
    (answer,) = claims.evidence(claims.all_claims()["C21"], found, {})
    assert "smoothmix and gaussian" in answer.what
    assert answer.verdict == "confirmed"


def at_sigma(study: StudyResults, sigma: float) -> tuple[StudyRow, ...]:
    return tuple(replace(row, sigma=sigma) for row in study.rows)


def test_claim_about_sigmas_is_undecided_until_they_are_measured() -> None:
    """C17, "most at sigma 0.50 and 1.00", was confirmed from sigma 0.25 alone."""
    small = study_of({"gaussian some": 0.1, "gaussian some-high": 0.0})
    assert judged("C17", small, {}) == "undecided (sigma 0.5 and 1 not measured)"
    for gain, expected in ((0.3, "confirmed"), (0.05, "contradicted")):
        large = study_of({"gaussian some": gain, "gaussian some-high": 0.0})
        rows = (*small.rows, *at_sigma(large, 0.5), *at_sigma(large, 1.0))
        assert judged("C17", replace(small, rows=rows), {}) == expected


def test_claim_about_accuracy_is_judged_by_accuracy_too() -> None:
    """C6, "in ACR and accuracy", was judged by ACR alone."""
    found = study_of({f"consistency {name}": 0.0 for name in ("dnn3", "single1", "single2", "single3")})
    larger = study_of({"consistency some": 0.4}).rows
    best = replace(found, arms={**found.arms, "consistency some": "some"}, rows=(*found.rows, *larger))
    assert judged("C6", best, {}) == "undecided"  # larger radii, the same images are correct
    evidence = list(claims.evidence(claims.all_claims()["C6"], best, {}))
    assert len(evidence) == 8
    assert {item.column for item in evidence} == {"certified_radius", "correct"}


def test_one_measurement_shared_by_bases_counts_once() -> None:
    """C8 and C20: certification does not depend on the base method, and two bases counted as two."""
    ratio = MedianInterval(0.35, 0.33, 0.38)
    shared = {("certify", base, "some", "dnn5"): ratio for base in ("gaussian", "consistency")}
    (item,) = claims.evidence(claims.all_claims()["C8"], replace(study_of({}), rows=()), shared)
    assert (item.cell, item.verdict) == ("gaussian and consistency", "confirmed")


def write_log(path: Path, radii: np.ndarray, offset: int = 0) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    rows = [f"{i + offset}\t{i % 10}\t{i % 10}\t{r:.6f}\t1\t0:00:01" for i, r in enumerate(radii)]
    path.write_text("\n".join(["idx\tlabel\tpredict\tradius\tcorrect\ttime", *rows, ""]))
    return str(path)


def test_imported_logs_are_paired_on_their_common_images(tmp_path: Path) -> None:
    some = write_log(tmp_path / "some" / "gaussian-0.25.tsv", np.full(80, 0.5))
    single = write_log(tmp_path / "acr" / "cifar10-gaussian-0.25.tsv", np.full(40, 0.3), offset=20)
    notes: list[str] = []
    rows = paper.read_logs([str(tmp_path)], notes.append)
    assert notes == []
    found = paper.with_imports({"table3": paper.empty(experiments.get("table3"))}, rows)["table3"]
    (item,) = claims.evidence(claims.all_claims()["C2"], found, {})
    assert item.gain.value == pytest.approx(0.2)
    assert {len(row.results or ()) for row in found.certified} == {40}
    (note,) = paper.import_notes(found)
    assert "the 40 images that all of them have" in note
    assert "say nothing of other trainings" in note
    other = Path(single).read_text().replace("\n20\t0\t", "\n20\t7\t")
    Path(single).write_text(other)
    rows = paper.read_logs([some, single])
    with pytest.raises(LedgerError, match="Image 20 has label"):
        paper.with_imports(
            {"table3": paper.empty(experiments.get("table3"))}, paper.read_logs([some, single])
        )


def test_imported_logs_with_another_alpha_are_not_compared(tmp_path: Path) -> None:
    from smoothheads.certify.bounds import clopper_pearson_lower
    from smoothheads.noise import FloatGaussian

    def radii(alpha: float) -> np.ndarray:
        n = 100_000
        p_lower = [clopper_pearson_lower(n - j, n, alpha) for j in range(40)]
        return 0.25 * FloatGaussian().unit_radius(np.array(p_lower))

    write_log(tmp_path / "some" / "gaussian-0.25.tsv", radii(0.01))
    write_log(tmp_path / "single" / "gaussian-0.25.tsv", radii(0.001))
    rows = paper.read_logs([str(tmp_path)])
    assert sorted(row.results.alpha or 0 for row in rows if row.results) == [0.001, 0.01]
    found = paper.with_imports({"table3": paper.empty(experiments.get("table3"))}, rows)["table3"]
    assert not list(claims.evidence(claims.all_claims()["C2"], found, {}))
    assert "Certified otherwise (n = 100,000, alpha = 0.0" in paper.import_notes(found)[-1]


def test_names_of_imported_logs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "some" / "gaussian-0.25.tsv"
    write_log(log, np.array([0.5, 0.0]))
    named, self_taught = f"gaussian/some/0.25={log}", f"gaussian/some-self/0.5={log}"
    assert [row.seed for row in paper.read_logs([str(tmp_path), named])] == [0, 1]
    with pytest.raises(ConfigError, match="BASE/STRUCTURE/SIGMA=PATH"):
        paper.read_logs([str(tmp_path / "log.tsv")])
    other = tmp_path / "other.tsv"
    write_log(other, np.array([0.5, 0.0]), offset=7)
    with pytest.raises(ConfigError, match="has other images than the log before it of gaussian some"):
        paper.read_logs([named, f"gaussian/some/0.25={other}"])
    logs = paper.read_logs([named, f"gaussian/single/0.25={other}"])
    with pytest.raises(LedgerError, match="no image in common"):
        paper.with_imports({"table3": paper.empty(experiments.get("table3"))}, logs)
    (tmp_path / "none").mkdir()
    with pytest.raises(ConfigError, match="has no certification logs"):
        paper.read_logs([str(tmp_path / "none")])
    with pytest.raises(ConfigError, match=r"is a row of table6 \(gaussian some at sigma 0\.25\)"):
        paper.with_imports({"table6": paper.empty(experiments.get("table6"))}, paper.read_logs([named]))
    fewer = {"table3": replace(paper.empty(experiments.get("table3")), arms={})}  # a scale without this row
    assert "gaussian some" in paper.with_imports(fewer, paper.read_logs([named]))["table3"].arms
    assert main(["paper", "table3", "--import", named, self_taught]) == 0
    assert "gaussian some-self at sigma 0.5 is no row of table3: left out" in capsys.readouterr().err
    assert main(["paper", "table3", "--import", str(tmp_path)]) == 0
    assert "1 logs in" in capsys.readouterr().err
    assert main(["paper", "--import", named]) == 2  # some/gaussian is a row of several experiments
    assert "name the one whose rows the logs are" in capsys.readouterr().err


@pytest.mark.shared
def test_published_logs_of_some_and_single_networks(
    shared_data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """SOME gains on single networks of another group in eight of nine cells, on the 500 common images."""
    logs = str(shared_data / "published-logs")
    assert main(["paper", "table3", "--import", logs, "--format", "markdown"]) == 0
    shown = capsys.readouterr().out
    for cell, gain, bounds in (
        ("gaussian 0.5", "+0.1044", "[+0.0815, +0.1291]"),
        ("smoothmix 1", "+0.0187", "[-0.0357, +0.0740]"),
    ):
        assert f"some − single, {cell} | " in shown
        assert f"| {gain} | one seed | {bounds} |" in shown
    assert "| smoothmix some | 1 | 9/10 [8, 9] | 4 | 0.000 [0.000, 0.000] |" in shown
    assert "| macer single | 1 | 7/10 [7, 7] |" in shown
    assert "the 500 images that all of them have (n = 100,000, alpha = 0.001" in shown


def test_a_part_of_smoke_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    experiment = experiments.get("draws")
    run = paper.start([experiment], experiments.scale("smoke"), store=tmp_path / "store")
    assert run is not None
    assert run.run_on(Inline()) == {}
    table: Table = paper.comparison(experiment, run.results()["draws"])
    assert "gaussian some-m4" in to_text(table)
    command = ["paper", "draws", "--scale", "smoke", "--store", str(tmp_path / "store")]
    assert main([*command, "--out", str(tmp_path / "kept")]) == 0
    ran = capsys.readouterr().out
    (tmp_path / "again").mkdir()
    (tmp_path / "again" / "costs.json").write_text('{"gflops": "somebody\'s"}')
    (tmp_path / "kept" / "costs.json").write_text(
        json.dumps(
            {"settings": {}, "machine": {}} | {key: {} for key in ("train", "certify", "gflops", "params")}
        )
    )
    assert main(["paper", "draws", "--from", str(tmp_path / "kept"), "--out", str(tmp_path / "again")]) == 0
    assert "somebody's" in (tmp_path / "again" / "costs.json").read_text()  # draws has no costs
    (tmp_path / "kept" / "costs.json").unlink()
    capsys.readouterr()
    assert main(["paper", "draws", "--from", str(tmp_path / "kept")]) == 0
    assert capsys.readouterr().out == ran
    assert "C24" in ran
    for every in ["all"], []:
        assert main(["paper", *every, "--from", str(tmp_path / "kept")]) == 0
        shown = capsys.readouterr()
        assert shown.out == ran
        assert "table3" in shown.err  # which is not kept there
    assert main(["paper", "--from", str(tmp_path)]) == 2
    assert main(["paper", "all", "--from", str(tmp_path / "kept"), "--page", str(tmp_path / "page.md")]) == 0
    text = (tmp_path / "page.md").read_text()
    assert "## draws:" in text
    assert "| C1: " in text
    assert "](page.svg)" in text
    assert "C24 some" in (tmp_path / "page.svg").read_text()
    (tmp_path / "other.svg").write_text("somebody's")
    assert main(["paper", "all", "--from", str(tmp_path / "kept"), "--page", str(tmp_path / "other.md")]) == 2
    assert (tmp_path / "other.svg").read_text() == "somebody's"
    assert not (tmp_path / "other.md").exists()


def test_costs_are_shown_without_rows_and_refused_if_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved = Path(__file__).parents[2] / "benchmarks" / "paper" / costs.FILE
    (tmp_path / costs.FILE).write_text(saved.read_text())
    assert main(["paper", "table2", "--from", str(tmp_path)]) == 0
    shown = capsys.readouterr().out
    assert "certify: some / dnn5" in shown
    assert main(["paper", "table2", "--scale", "smoke", "--out", str(tmp_path)]) == 0  # has nothing to train
    assert capsys.readouterr().out == shown
    told = json.loads(saved.read_text())
    for damaged in ({**told, "train": {"some": [1.0]}}, {**told, "params": {"gaussian some": "many"}}, {}):
        (tmp_path / costs.FILE).write_text(json.dumps(damaged))
        with pytest.raises(LedgerError, match="The measured costs in"):
            costs.load(tmp_path)


def test_two_networks_are_drawn_on_the_same_noise(tmp_path: Path) -> None:
    experiment = experiments.get("fig2")
    scale = experiments.scale("smoke")
    run = paper.start([experiment], scale, store=tmp_path)
    assert run is not None
    assert run.run_on(Inline()) == {}
    plan, rows = run.plan, run.results()["fig2"].certified
    found = diagnoses.measure_gaps(plan, run.store, draws=200)
    assert found == diagnoses.measure_gaps(plan, run.store, draws=200)
    assert [each.image for each in found.values()] == [found["gaussian some"].image] * 2
    assert all(sum(each.counts) == 200 for each in found.values())
    study = replace(run.results()["fig2"], gaps=found)
    assert paper.figure(experiment, study) is not None
    assert len(diagnoses.gap_table(study).rows) == 2
    save(study, tmp_path / "kept")
    assert load(tmp_path / "kept").gaps == found
    assert diagnoses.is_measured(found, rows, draws=200)
    assert not diagnoses.is_measured(found, rows, draws=300)
    other = {arm: replace(each, weights="of another network") for arm, each in found.items()}
    assert not diagnoses.is_measured(other, rows, draws=200)
    assert not diagnoses.is_measured({}, rows, draws=200)


def test_fig2_is_shown_from_what_was_kept_without_its_networks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["paper", "fig2", "--scale", "smoke", "--workers", "1", "--out", str(tmp_path / "kept")]
    assert main([*command, "--store", str(tmp_path / "store")]) == 0
    ran = capsys.readouterr().out
    assert main([*command, "--store", str(tmp_path / "gone")]) == 0
    assert capsys.readouterr().out == ran
    assert not (tmp_path / "gone" / "trained").exists()


def test_figures_have_a_curve_per_family() -> None:
    gains = {"single-m2": 0.1, "some-2": 0.2, "some": 0.3, "some-hard": 0.1}
    found = study_of({f"gaussian {name}": gain for name, gain in gains.items()})
    drawn = {name: paper.figure(experiments.get(name), found) for name in ("fig4", "fig5", "table3")}
    assert drawn["fig4"] is not None
    axes = drawn["fig4"].axes[0]
    assert np.array_equal(axes.lines[0].get_xdata(), [1, 2, 5])
    bars = [segment for each in axes.collections for segment in cast(LineCollection, each).get_segments()]
    assert [bar[0, 0] for bar in bars] == [2, 5]  # paired with one head: these differ by a constant, surely
    assert all(np.ptp(bar[:, 1]) < 1e-9 for bar in bars)
    assert axes.get_title().endswith("from single-m2, over seeds and images")
    first = tuple(each for each in found.rows if each.seed == 0)
    mixed = tuple(each for each in found.rows if each.seed == 0 or each.arm != "gaussian some")
    for rows, title in (
        (first, "over images (one seed)"),
        (mixed, "seeds and images; one seed: over images"),
    ):
        some = paper.figure(experiments.get("fig4"), replace(found, rows=rows))
        assert some is not None
        assert some.axes[0].get_title().endswith(title)
    assert drawn["fig5"] is not None  # of one sigma: paired differences instead of curves through one point
    labels = [text.get_text() for text in drawn["fig5"].axes[0].get_yticklabels()]
    assert labels == ["fig5", "C16 some − some-hard, gaussian 0.25"]
    assert drawn["table3"] is None


@pytest.mark.parametrize("name", ["small", "benchmarks/paper/scale.toml"])
def test_titles_name_the_network_that_is_trained(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    scale = experiments.scale(name)
    for each in TRAINED:
        study = experiments.study(each, scale, root="/data")
        archs = {study.run_config(arm, "", arm.sigmas[0], 0).model.arch for arm in study.arms}
        assert [arch.replace("resnet", "ResNet-") in study.title for arch in archs] == [True], study.title
