"""A whole study on digits: made once, failed arms apart, kept and shown again to the digit."""

from __future__ import annotations

import gzip
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.studies.small import TEXT, Inline, study

from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.radius import max_radius
from smoothheads.cli import main
from smoothheads.data import ArrayDataset, Digits, Split, SubsetConfig, load
from smoothheads.device import threads
from smoothheads.errors import LedgerError, StorageError
from smoothheads.files import exclusive, sha256
from smoothheads.provenance import processor
from smoothheads.report.table import to_csv, to_json, to_text
from smoothheads.runs.executors import Future
from smoothheads.runs.train import train_run
from smoothheads.studies import reading, stages
from smoothheads.studies.figures import gains_against_fit, gains_figure, write_figures
from smoothheads.studies.html import page, write_page
from smoothheads.studies.jobs import ELSEWHERE, StudyJob, network_folder, perform
from smoothheads.studies.outcome import collect, kept, save
from smoothheads.studies.outcome import load as load_outcome
from smoothheads.studies.plan import Certification, Item, Joining, StudyPlan, Training
from smoothheads.studies.prepare import estimate, prepare
from smoothheads.studies.run import noted_estimate, run, status
from smoothheads.studies.spec import Images
from smoothheads.studies.store import StudyStore
from smoothheads.studies.tables import all_tables, costs, gains, headline
from smoothheads.training.loop import EpochDone, StepDone
from smoothheads.types import format_radius


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[StudyPlan, StudyStore]:
    store = StudyStore(tmp_path_factory.mktemp("store"))
    plan, _ = prepare(study())
    assert run(plan, store, Inline(), {}) == {}
    return plan, store


def test_nothing_is_made_twice_in_any_study(finished: tuple[StudyPlan, StudyStore]) -> None:
    plan, store = finished
    again = Inline()
    run(plan, store, again, {})
    assert again.done == []
    longer, _ = prepare(
        study(TEXT.replace("seeds = [0, 1]", "seeds = [1, 0]") + "[arms.more]\nmembers = 3\n")
    )
    missing = [item for item in longer.items if isinstance(item, Training) and store.facts(item) is None]
    assert {item.config.train.seed for item in missing} == {2000, 2001}
    assert status(plan, store, {}).count("done") == len(plan.items)


@pytest.mark.parametrize(
    ("kind", "folder"),
    [
        (Training, StudyStore.folder),
        (Joining, StudyStore.folder),
        (Certification, StudyStore.folder),
        (Training, StudyStore.artefact),
        (Certification, StudyStore.artefact),
    ],
)
def test_what_another_study_is_making_is_waited_for(
    kind: type[Training | Joining | Certification],
    folder: Callable[[StudyStore, Item], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two studies that share a network, in two terminals: it was a failed row of the second."""
    monkeypatch.setattr("smoothheads.studies.run.ELSEWHERE_SECONDS", 0.0)
    small = TEXT.replace("seeds = [0, 1]", "seeds = [0]")
    plan, _ = prepare(study(small.split("[arms.some]")[0] + "[certify]" + small.split("[certify]")[1]))
    store = StudyStore(tmp_path)
    item = next(item for item in plan.items if isinstance(item, kind))
    other = exclusive(folder(store, item))

    class OtherStops(Inline):
        def wait(self, seconds: float) -> list[Future[Any]]:
            ended = super().wait(seconds)
            if ended[0].result() == ELSEWHERE:
                other.__exit__(None, None, None)
            return ended

    other.__enter__()
    executor = OtherStops()
    assert run(plan, store, executor, {}) == {}
    assert executor.done.count(item.key) == 2
    assert status(plan, store, {}).count("done") == len(plan.items)


def test_rows_note_the_processors_that_made_them(finished: tuple[StudyPlan, StudyStore]) -> None:
    outcome = collect(*finished)
    assert all(each.facts["processors"] == [processor()] for each in outcome.results)
    assert processor() in costs(outcome).notes[-1]


def test_rows_tell_the_size_of_their_network_also_those_kept_before_they_did(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path
) -> None:
    plan, store = finished
    outcome = collect(plan, store)
    sizes = {each.arm: each.facts["size"] for each in outcome.results}
    assert sizes["pair"]["params"] == 2 * sizes["single"]["params"]
    assert sizes["pair"]["gmacs"] == 2 * sizes["single"]["gmacs"] < sizes["pair"]["gmacs_paper"]
    assert {arm: size["head_share"] for arm, size in sizes.items()} == {
        "single": 0.0,
        "pair": 1.0,
        "some": pytest.approx(3 / 8),
    }
    table = costs(outcome)
    assert table.rows[0][table.columns.index("params")].value == sizes["single"]["params"]
    without = [
        replace(each, facts={name: fact for name, fact in each.facts.items() if name != "size"})
        for each in outcome.results
    ]
    before = replace(outcome, results=tuple(without))
    assert "–" in to_text(costs(before))
    save(before, tmp_path / "kept")
    again = collect(plan, StudyStore(tmp_path / "gone"), {}, kept(tmp_path / "kept"))
    assert [each.facts for each in again.results] == [each.facts for each in outcome.results]


def test_jobs_of_one_process_read_the_images_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def read(data: Digits, split: Split) -> ArrayDataset:
        seen.append(split)
        return digits(data, split)

    digits = Digits.read
    monkeypatch.setattr(Digits, "read", read)
    stages._whole.cache_clear()
    small = Digits(subset=SubsetConfig(first=40), validation=0.0)
    for data in (small, Digits(validation=0.0), small):
        assert len(load(data, stages.read_once).train) == (40 if data == small else 1437)
        stages.certified_images(data, Images())
    assert sorted(seen) == ["test", "train"]


def test_a_study_goes_on_where_its_data_have_moved(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8), np.uint8)
    labels = np.arange(40) % 4
    test = {"x_test": pixels[:8], "y_test": labels[:8]}
    np.savez(tmp_path / "first.npz", allow_pickle=False, x_train=pixels, y_train=labels, **test)
    text = TEXT.replace("data.subset.first = 40", 'data = {name = "npz", root = "ROOT"}')
    text = text.replace("offset = 3\nevery = 100", "first = 2").replace("seeds = [0, 1]", "seeds = [0]")
    text = text.replace("epochs = 1", "epochs = 3")

    def planned(name: str) -> StudyPlan:
        return prepare(study(text.replace("ROOT", str(tmp_path / name))))[0]

    begun, _, trained = (item for item in planned("first.npz").items if isinstance(item, Training))
    store = StudyStore(tmp_path / "store")

    def interrupt(event: StepDone | EpochDone) -> None:
        if event.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(begun.config, store.artefact(begun), on_event=interrupt, save_seconds=0)
    assert perform(StudyJob(trained, store)) is None
    (tmp_path / "first.npz").rename(tmp_path / "second.npz")
    stages._whole.cache_clear()
    plan = planned("second.npz")
    assert {begun.key, trained.key} <= {item.key for item in plan.items}
    assert run(plan, store, Inline(), {}) == {}


def test_a_picture_of_what_no_longer_holds_is_removed_if_it_is_ours(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path
) -> None:
    outcome = collect(*finished)
    write_figures(outcome, tmp_path)
    (tmp_path / "gains.png").write_bytes(b"somebody's")
    nothing = replace(outcome, results=tuple(replace(each, measured=None) for each in outcome.results))
    write_figures(nothing, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["acr.png", "acr.svg", "gains.png"]


def test_an_arm_is_not_shown_at_a_sigma_that_it_does_not_have(tmp_path: Path) -> None:
    text = TEXT.replace("[0.25]", "[0.25, 0.5]").replace("[arms.some]\n", "[arms.some]\nsigmas = [0.5]\n")
    plan, _ = prepare(study(text))
    shown = [(row[0].text, row[1].text) for row in headline(collect(plan, StudyStore(tmp_path))).rows]
    both = [(arm, sigma) for sigma in ("0.25", "0.5") for arm in ("single", "pair")]
    assert shown == [*both, ("some", "0.5")]


def test_the_facts_of_a_training_tell_which_weights_it_gave(finished: tuple[StudyPlan, StudyStore]) -> None:
    plan, store = finished
    for item in (item for item in plan.items if isinstance(item, Training)):
        facts = store.facts(item)
        assert facts is not None
        assert facts["weights"] == sha256(network_folder(item, store) / "model.safetensors")


def test_trials_have_one_thread_as_the_study_will_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, images = prepare(study())
    seen = []

    def trial(*_: object) -> float:
        seen.append(torch.get_num_threads())
        return 1.0

    for name in ("training_seconds", "seconds_per_sample"):
        monkeypatch.setattr(f"smoothheads.studies.prepare.{name}", trial)
    with threads(2):
        estimate(plan, StudyStore(tmp_path), images)
        assert torch.get_num_threads() == 2
    assert set(seen) == {1}


def test_results_are_kept_before_they_are_shown(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`study ... --out FOLDER | head -5` closes the pipe in the middle of a table."""
    save(collect(*finished), tmp_path / "kept")
    file = tmp_path / "small.toml"
    file.write_text(TEXT)

    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("smoothheads.cli.study.print_tables", broken)
    main(["study", str(file), "--from", str(tmp_path / "kept"), "--out", str(tmp_path / "again")])
    assert load_outcome(tmp_path / "again").results


def test_what_nothing_is_known_of_yet_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "small.toml").write_text(TEXT)
    command = ["study", str(tmp_path / "small.toml"), "--store", str(tmp_path / "store"), "--status"]
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "not yet" in shown
    assert "Cost" not in shown
    assert "Gains" not in shown


def test_radii_are_never_rounded_up(tmp_path: Path) -> None:
    radius = math.nextafter(0.3 + 2e-6, 0)
    log = tmp_path / "foreign.tsv"
    log.write_text(f"idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t{radius!r}\t1\t0:00:01\n")
    assert reading.read(log).radius[0] <= radius


def test_the_time_left_follows_what_was_measured(tmp_path: Path) -> None:
    plan, store = prepare(study())[0], StudyStore(tmp_path)
    costs = dict.fromkeys((item.key for item in plan.items), 10.0)
    assert status(plan, store, costs).seconds_left == 10.0 * len(plan.items)
    store.finish(plan.items[0], {"seconds": 30.0})
    assert status(plan, store, costs).seconds_left == 30.0 * (len(plan.items) - 1)
    store.finish(plan.items[1], {"seconds": 3.0, "share": 0.1})  # the rest of one that was stopped
    assert status(plan, store, costs).seconds_left == pytest.approx(30.0 * (len(plan.items) - 2))


def test_the_time_left_follows_certifications_that_are_running(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path
) -> None:
    """How many samples an image takes is not known before; of two, one had to end before it was corrected."""
    plan, store = prepare(study())[0], StudyStore(tmp_path)
    costs = dict.fromkeys((item.key for item in plan.items), 10.0)
    certifications = [item for item in plan.items if isinstance(item, Certification)]
    for item in plan.items:
        if not isinstance(item, Certification):
            store.finish(item, {"seconds": 10.0})
    assert status(plan, store, costs).seconds_left == 10.0 * len(certifications)
    made, ledger = finished[1].artefact(certifications[0]), store.artefact(certifications[0])
    ledger.mkdir(parents=True)
    (ledger / "manifest.json").write_text((made / "manifest.json").read_text())
    head, *rows = (made / "ledger.tsv").read_text().splitlines()
    cells = [row.split("\t") for row in rows[: len(rows) // 2]]
    slow = ["\t".join([*row[:5], "0:01:40", *row[6:]]) for row in cells]
    (ledger / "ledger.tsv").write_text("\n".join([head, *slow]) + "\n")
    share = len(slow) / len(rows)
    slower = 100 * len(slow) / (10 * share)
    left = 10 * (len(certifications) - share) * slower
    assert status(plan, store, costs).seconds_left == pytest.approx(left)
    (ledger / "ledger.tsv").write_text("\n".join([head, *slow]) + "\n12\t3")  # torn
    assert status(plan, store, costs).seconds_left == pytest.approx(left)


def test_the_status_of_a_running_study_rests_on_its_own_estimate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked from elsewhere while the study keeps the machine busy, when trials would take far too long."""
    file = tmp_path / "small.toml"
    file.write_text(TEXT)
    plan, store = prepare(study())[0], StudyStore(tmp_path / "store")
    other = prepare(study(TEXT.replace("epochs = 1", "epochs = 2")))[0]
    for trial in ("training_seconds", "seconds_per_sample"):
        monkeypatch.setattr(f"smoothheads.studies.prepare.{trial}", lambda *_: pytest.fail("a trial"))

    class Asked(Inline):
        def submit(self, function: Any, item: Any) -> Future[Any]:
            assert main(["study", str(file), "--store", str(store.root), "--status"]) == 0
            assert noted_estimate(other, store) is None
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(plan, store, Asked(), dict.fromkeys((item.key for item in plan.items), 3600.0))
    hours = len(plan.items) // Asked.slots
    assert f"{len(plan.items)} waiting, 0 failed; about {hours} h" in capsys.readouterr().err
    assert noted_estimate(plan, store) is None  # the study takes its note away, however it ends
    store.artefact(plan.items[0]).mkdir(parents=True)
    assert main(["study", str(file), "--store", str(store.root), "--status"]) == 0  # without a trial
    assert f"1 begun, {len(plan.items) - 1} waiting, 0 failed; it is not running" in capsys.readouterr().err
    with store.noting(dict.fromkeys((item.key for item in plan.items), 1.0), 2):
        (note,) = store.root.glob(".*.json")
        whole = note.read_text()
        assert noted_estimate(plan, store) is not None
        for damaged in (
            whole.replace(": 1.0", ': "long"'),
            whole.replace('"jobs": 2', '"jobs": 0'),
            whole[:-9],
        ):
            note.write_text(damaged)
            assert noted_estimate(plan, store) is None


def test_a_study_that_was_killed_is_not_running(tmp_path: Path) -> None:
    """It leaves its note behind; the next study takes that away, but not the note of one that runs."""
    plan, store = prepare(study())[0], StudyStore(tmp_path)
    costs = dict.fromkeys((item.key for item in plan.items), 1.0)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    with store.noting(costs, 2):
        (ours,) = store.root.glob(".*.json")
        killed, another = (store.root / f".{name}.estimate.json" for name in ("killed", "another"))
        killed.write_text(ours.read_text().replace(f": {os.getpid()},", f": {ended.pid},"))
        another.write_text(ours.read_text().replace('"jobs": 2', '"jobs": 3'))
        ours.unlink()
        assert noted_estimate(plan, store) == (costs, 3)
        another.unlink()
        assert noted_estimate(plan, store) is None
        with store.noting(costs, 4):
            assert not killed.exists()
            assert noted_estimate(plan, store) == (costs, 4)


def test_rows_pair_over_images_and_show_the_same_when_kept(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path
) -> None:
    outcome = collect(*finished)
    assert [each.name for each in outcome.results if each.measured is None] == []
    first = outcome.results[0].measured
    assert first is not None
    assert all(np.array_equal(each.measured.index, first.index) for each in outcome.results if each.measured)
    save(outcome, tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    again = load_outcome(tmp_path)
    save(again, tmp_path)
    assert before == {path.name: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for ours, theirs in zip(all_tables(outcome), all_tables(again), strict=True):
        assert to_json(ours) == to_json(theirs)
        assert to_csv(ours) == to_csv(theirs)


def test_what_was_kept_is_not_made_again_where_the_store_is_gone(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path
) -> None:
    plan, store = finished
    whole = collect(plan, store)
    some = [each for each in whole.results if (each.arm, each.seed) != ("some", 1)]
    save(replace(whole, results=tuple(some)), tmp_path / "kept")
    before, elsewhere, executor = kept(tmp_path / "kept"), StudyStore(tmp_path / "other"), Inline()
    missing = plan.without(before)
    assert [row.name for row in missing.rows] == ["0.25/some/1"]
    assert run(missing, elsewhere, executor, {}) == {}
    assert len(executor.done) == 2  # one training, one certification
    again = collect(plan, elsewhere, kept=before)
    for ours, theirs in zip(whole.results, again.results, strict=True):
        assert ours.name == theirs.name
        assert ours.measured is not None
        assert theirs.measured is not None
        assert np.array_equal(ours.measured.radius, theirs.measured.radius)
    assert kept() == kept(tmp_path / "none" / "study") == {}


def test_rows_of_the_studies_beside_are_not_made_again_either(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path
) -> None:
    plan, store = finished
    save(collect(plan, store), tmp_path / "first")
    assert plan.without(kept(tmp_path / "second")).rows == ()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "study.json").write_text("{}")
    assert plan.without(kept(tmp_path / "second")).rows == ()
    next((tmp_path / "first" / "rows").iterdir()).write_bytes(b"damaged")
    told: list[str] = []
    found = kept(tmp_path / "second", on_damaged=lambda error: told.append(str(error)))
    assert found == {}  # a damaged one is no row, of this study or another
    assert [name for name in ("first", "foreign") if name in " ".join(told)] == ["first", "foreign"]
    with pytest.raises(LedgerError, match="a file that was changed"):
        kept(tmp_path / "first")


def test_rows_are_kept_while_the_study_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Inline):
        """Ends the process, as it were, after the first certification."""

        def __init__(self, *_: object) -> None:
            super().__init__()

        def wait(self, seconds: float) -> list[Future[Any]]:
            if any(isinstance(job.item, Certification) for job in certified):
                raise KeyboardInterrupt
            certified.append(self._queue[0][2])
            return super().wait(seconds)

    certified: list[StudyJob] = []
    monkeypatch.setattr("smoothheads.runs.executors.ProcessExecutor", Broken)
    monkeypatch.setattr("smoothheads.studies.run.STATUS_SECONDS", 0.0)
    monkeypatch.setattr("smoothheads.studies.prepare.estimate", lambda *_: {})
    (tmp_path / "small.toml").write_text(TEXT)
    command = ["study", str(tmp_path / "small.toml"), "--store", str(tmp_path / "store")]
    assert main([*command, "--out", str(tmp_path / "kept")]) != 0
    found = [each.name for each in load_outcome(tmp_path / "kept").results if each.measured is not None]
    assert found == ["0.25/some/0"]


def test_rows_that_were_changed_are_refused_and_files_of_others_stay(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path
) -> None:
    outcome = collect(*finished)
    save(outcome, tmp_path)
    row = next((tmp_path / "rows").iterdir())
    foreign = row.with_name("mine.tsv.gz")
    foreign.write_bytes(gzip.compress(gzip.decompress(row.read_bytes()).replace(b"0.", b"1.")))
    slower = [
        replace(each, measured=replace(each.measured, seconds=each.measured.seconds + 1))
        for each in outcome.results
        if each.measured is not None
    ]
    before = {path.name for path in (tmp_path / "rows").iterdir()} - {foreign.name}
    save(replace(outcome, results=tuple(slower)), tmp_path)
    after = {path.name for path in (tmp_path / "rows").iterdir()}
    assert (len(after), before & after, foreign.name in after) == (len(before) + 1, set(), True)
    save(outcome, tmp_path)
    row.write_bytes(foreign.read_bytes())
    with pytest.raises(LedgerError, match="a file that was changed"):
        load_outcome(tmp_path)
    save(outcome, tmp_path)
    assert to_text(headline(load_outcome(tmp_path))) == to_text(headline(outcome))


def test_measured_rows_are_not_lost_to_another_study(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They were removed when a study with fewer arms, or other settings, was kept in their folder."""
    plan, store = finished
    out = tmp_path / "kept"
    save(collect(plan, store), out)
    files = sorted((out / "rows").iterdir())
    assert files
    fewer = TEXT.replace('[arms.some]\nrecipe = "digits-some"\nmodel.heads = 2\n', "")
    for text, lost in ((fewer, 2), (TEXT.replace("n = 50", "n = 60"), 6), (TEXT.replace("[0, 1]", "[0]"), 3)):
        other, _ = prepare(study(text))
        with pytest.raises(StorageError, match=f"{lost} of another study or of other settings"):
            save(collect(other, StudyStore(tmp_path / "other")), out)
        (tmp_path / "small.toml").write_text(text)
        command = ["study", str(tmp_path / "small.toml"), "--store", str(tmp_path / "new"), "--out", str(out)]
        assert main(command) == 2
        assert "choose another folder" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()  # before anything is trained
    assert sorted((out / "rows").iterdir()) == files
    more, _ = prepare(study(TEXT.replace("[0, 1]", "[0, 1, 2]")))
    save(collect(more, StudyStore(tmp_path / "other")), out)
    assert sorted((out / "rows").iterdir()) == files


def test_a_kept_row_stays_where_it_is_made_again_and_fails(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path
) -> None:
    plan, store = finished
    save(collect(plan, store), tmp_path / "kept")
    before, row = kept(tmp_path / "kept"), plan.rows[0]
    damaged = StudyStore(tmp_path / "damaged")
    damaged.finish(row.certification, {"seconds": 1.0})  # and no ledger
    assert "failed" in collect(plan, damaged).results[0].facts
    for failed in ({}, {row.certification.key: "no memory"}):
        found = collect(plan, damaged, failed, before)
        assert found.results[0].measured is not None
        assert not found.failed


def test_status_writes_nothing(finished: tuple[StudyPlan, StudyStore], tmp_path: Path) -> None:
    _, store = finished
    (tmp_path / "small.toml").write_text(TEXT)
    command = ["study", str(tmp_path / "small.toml"), "--store", str(store.root)]
    assert main([*command, "--status", "--out", str(tmp_path / "kept")]) == 0
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("more", [0.0, 1e-5, -1e-5])
def test_kept_radii_are_not_believed_but_recomputed_from_their_votes(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path, more: float
) -> None:
    """Whoever writes the folder whole can make names and checksums agree, but not the votes."""
    outcome = collect(*finished)
    first, *others = outcome.results
    assert first.measured is not None
    best = format_radius(max_radius(50, 0.001, 0.25))  # 50 of the 50 samples that the study has
    same = np.ones_like(first.measured.noisy)
    told = replace(
        first.measured, prediction=first.measured.label, noisy=same, radius=same * (float(best) + more)
    )
    save(replace(outcome, results=(replace(first, measured=told), *others)), tmp_path)
    if more:
        with pytest.raises(LedgerError, match=f"follow from their votes.*image {told.index[0]}"):
            load_outcome(tmp_path)
    else:
        assert load_outcome(tmp_path).results[0].measured is not None


def test_votes_of_one_class_tell_the_radius_only_where_the_bound_is_clopper_pearson() -> None:
    radius = CertifyConfig.of(0.5, budget="radius", n=10_000)
    fixed = CertifyConfig.of(0.5, n=10_000)
    assert radius.budget.choice_sizes
    assert fixed.budget.choice_sizes == (100,)
    assert not fixed.changed(bound="pair").budget.choice_sizes
    for name in ("table", "anytime"):
        assert not CertifyConfig.of(0.5, budget=name).budget.choice_sizes


def test_the_page_says_first_what_was_found_and_needs_nothing_else(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path
) -> None:
    outcome = replace(collect(*finished), title="<b>Small</b>")
    text = write_page(outcome, tmp_path).read_text()
    assert "&lt;b&gt;Small&lt;/b&gt;" in text
    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org", "")
    assert text.index("in ACR (95 %") < text.index("<table")
    for gain in gains(outcome):
        assert f"{gain[-1].value:+.3f} in ACR" in text
    nothing = [replace(each, measured=None) for each in outcome.results]
    assert "Nothing can be compared yet." in page(replace(outcome, results=tuple(nothing)))


def test_the_table_tells_how_many_training_images_were_easy(finished: tuple[StudyPlan, StudyStore]) -> None:
    plan, store = finished
    table = all_tables(collect(plan, store))[0]
    shown = {row[0].value: row[table.columns.index("easy")].value for row in table.rows}
    shares: dict[str, list[float]] = {}
    for row in plan.rows:
        for member in row.network.members if isinstance(row.network, Joining) else (row.network,):
            last = (store.artefact(member) / "metrics.jsonl").read_text().splitlines()[-1]
            shares.setdefault(row.arm, []).append(100 * np.mean(json.loads(last)["easy_fraction"]))
    assert shown == {arm: pytest.approx(np.mean(each)) for arm, each in shares.items()}


def test_a_picture_shows_every_gain_with_its_interval_and_its_seeds(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path
) -> None:
    outcome = replace(collect(*finished), arms={"single": "$one", "pair": "$two", "some": "some"})
    names = {path.name for path in write_figures(outcome, tmp_path)}
    assert names == {"acr.png", "acr.svg", "gains.png", "gains.svg"}
    figure = gains_figure(outcome)
    assert figure is not None
    (axes,) = figure.axes
    drawn = [tuple(np.asarray(line.get_xdata(), float).tolist()) for line in axes.lines]
    found = [gain for *_, gain in gains(outcome)]
    assert len(found) == 2
    for gain in found:
        assert {tuple(gain.interval), (gain.value,), gain.per_seed} <= set(drawn)
    labels = [text.get_text() for text in axes.get_yticklabels()]
    assert labels == ["$two − $one", "some − $one"]
    assert axes.get_title() == "sigma 0.25"
    nothing = [replace(each, measured=None) for each in outcome.results]
    assert gains_figure(replace(outcome, results=tuple(nothing))) is None


def test_a_map_shows_gains_against_the_fit(finished: tuple[StudyPlan, StudyStore], tmp_path: Path) -> None:
    outcome = collect(*finished)
    moved = [replace(each, setting="other", facts={**each.facts, "loss": 0.1}) for each in outcome.results]
    both = replace(outcome, results=(*outcome.results, *moved))
    names = {path.name for path in write_figures(both, tmp_path)}
    assert names == {"acr.png", "acr.svg", "gains.png", "gains.svg"}
    (axes,) = gains_against_fit(both).axes
    shown = {float(y) for bar in axes.containers for y in bar[0].get_ydata()}
    assert shown == {gain.value for *_, gain in gains(both)}
    assert {"sigma 0.25", "other"} == {text.get_text() for text in axes.texts}


def test_a_failed_arm_does_not_stop_the_others(finished: tuple[StudyPlan, StudyStore]) -> None:
    _, store = finished
    broken = TEXT + '[arms.broken]\nrecipe = "digits-single"\ntrain.lr = 1e30\ntrain.epochs = 3\n'
    plan, _ = prepare(study(broken.replace("seeds = [0, 1]", "seeds = [0]")))
    failed = run(plan, store, Inline(), {})
    outcome = collect(plan, store, failed)
    assert len(failed) == 2  # the training and its certification
    assert "a finite loss" in outcome.failed["0.25/broken/0"]
    assert sum(each.measured is not None for each in outcome.results) == 3
    assert "failed" in to_text(all_tables(outcome)[0])

    class Asked(Inline):
        def wait(self, seconds: float) -> list[Future[Any]]:
            counts.append(status(plan, store, {}).count("failed"))
            return super().wait(seconds)

    counts: list[int] = []
    assert run(plan, store, Asked(), {}) == failed
    assert counts[0] == 0  # it is tried again: a failure of the last run is none of this one
    assert status(plan, store, {}).count("failed") > 0


def test_two_studies_that_keep_into_one_folder_lose_no_row_of_each_other(
    finished: tuple[StudyPlan, StudyStore], tmp_path: Path
) -> None:
    """On two machines with a store each: what one made after the other had begun went from the folder."""
    plan, store = finished
    empty, out = collect(plan, StudyStore(tmp_path / "other")), tmp_path / "kept"
    save(empty, out)
    assert not any(each.measured for each in load_outcome(out).results)
    save(collect(plan, store), out)
    save(empty, out)  # of the one that has made nothing yet
    assert to_text(headline(load_outcome(out))) == to_text(headline(collect(plan, store)))
