"""A whole study on digits: everything made once, failed arms apart, and rows that outlive the store."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.studies.small import TEXT, Inline, results, start, study

from smoothheads.cli import main
from smoothheads.data import ArrayDataset, Split, SubsetConfig, load
from smoothheads.data.published import Digits
from smoothheads.errors import LedgerError
from smoothheads.files import exclusive, sha256
from smoothheads.report.table import to_text
from smoothheads.runs.executors import Future
from smoothheads.runs.models import METRICS
from smoothheads.runs.train import train_run
from smoothheads.studies import jobs
from smoothheads.studies import results as saved
from smoothheads.studies import run as studies
from smoothheads.studies.jobs import ELSEWHERE, StudyJob, perform, plan_study
from smoothheads.studies.plan import Certification, Item, Joining, StudyPlan, Training
from smoothheads.studies.results import save
from smoothheads.studies.run import StudyRun
from smoothheads.studies.spec import Images
from smoothheads.studies.store import StudyStore
from smoothheads.studies.tables import all_tables, headline
from smoothheads.training.loop import EpochDone, StepDone

ONE_ARM = TEXT.split("[arms.some]")[0].replace("seeds = [0, 1]", "seeds = [0]")
ONE_ARM += "[certify]" + TEXT.split("[certify]")[1]


def test_nothing_is_made_twice_in_any_study(finished: StudyRun) -> None:
    again = Inline()
    start(TEXT, finished.store.root).run_on(again)
    assert again.done == []
    text = TEXT.replace("seeds = [0, 1]", "seeds = [1, 0]") + "[arms.more]\nmembers = 3\n"
    longer, store = start(text, finished.store.root), finished.store
    items = longer.missing.items
    missing = [item for item in items if isinstance(item, Training) and store.facts(item) is None]
    assert {item.config.train.seed for item in missing} == {2000, 2001}
    assert finished.status().count("done") == len(finished.plan.items)


def test_python_users_run_a_study_with_one_call(tmp_path: Path, finished: StudyRun) -> None:
    file = tmp_path / "small.toml"
    file.write_text(TEXT)
    found = studies.run(file, store=finished.store.root, out=tmp_path / "out", workers=1)
    assert to_text(headline(found)) == to_text(headline(results(finished)))
    assert saved.load(tmp_path / "out").certified


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
def test_items_of_another_process_are_waited_for(
    kind: type[Training | Joining | Certification],
    folder: Callable[[StudyStore, Item], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two studies that share a network, in two terminals: it was a failed row of the second."""
    monkeypatch.setattr("smoothheads.studies.run.RETRY_SECONDS", 0.0)
    run = start(ONE_ARM, tmp_path)
    item = next(item for item in run.plan.items if isinstance(item, kind))
    other = exclusive(folder(run.store, item))

    class OtherStops(Inline):
        def wait(self, seconds: float) -> list[Future[str | None]]:
            ended = super().wait(seconds)
            if ended[0].result() == ELSEWHERE:
                other.__exit__(None, None, None)
            return ended

    other.__enter__()
    executor = OtherStops()
    assert run.run_on(executor) == {}
    assert executor.done.count(item.key) == 2
    assert run.status().count("done") == len(run.plan.items)


def test_jobs_of_one_process_read_the_images_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def read(data: Digits, split: Split) -> ArrayDataset:
        seen.append(split)
        return digits(data, split)

    digits = Digits.read
    monkeypatch.setattr(Digits, "read", read)
    jobs._full.cache_clear()
    small = Digits(subset=SubsetConfig(first=40), validation=0.0)
    for data in (small, Digits(validation=0.0), small):
        assert len(load(data, jobs.read_once).train) == (40 if data == small else 1437)
        jobs.certified_images(data, Images())
    assert sorted(seen) == ["test", "train"]


def test_study_goes_on_where_its_data_have_moved(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 255, (40, 8, 8), np.uint8)
    labels = np.arange(40) % 4
    test = {"x_test": pixels[:8], "y_test": labels[:8]}
    np.savez(tmp_path / "first.npz", allow_pickle=False, x_train=pixels, y_train=labels, **test)
    text = TEXT.replace("data.subset.first = 40", 'data = {name = "npz", root = "ROOT"}')
    text = text.replace("offset = 3\nevery = 100", "first = 2").replace("seeds = [0, 1]", "seeds = [0]")
    text = text.replace("epochs = 1", "epochs = 3")

    def planned(name: str) -> StudyPlan:
        return plan_study(study(text.replace("ROOT", str(tmp_path / name))))

    begun, _, trained = (item for item in planned("first.npz").items if isinstance(item, Training))
    store = StudyStore(tmp_path / "store")

    def interrupt(event: StepDone | EpochDone) -> None:
        if event.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_run(begun.config, store.artefact(begun), on_event=interrupt, save_seconds=0)
    assert perform(StudyJob(trained, store)) is None
    (tmp_path / "first.npz").rename(tmp_path / "second.npz")
    jobs._full.cache_clear()
    plan = planned("second.npz")
    assert {begun.key, trained.key} <= {item.key for item in plan.items}
    assert StudyRun({"small": plan}, store).run_on(Inline()) == {}


def test_facts_of_a_training_name_its_weights(finished: StudyRun) -> None:
    for item in (item for item in finished.plan.items if isinstance(item, Training)):
        facts = finished.store.facts(item)
        assert facts is not None
        assert facts["weights"] == sha256(finished.store.checkpoint(item) / "model.safetensors")


def test_failed_arm_does_not_stop_the_others(finished: StudyRun) -> None:
    broken = TEXT + '[arms.broken]\nrecipe = "digits-single"\ntrain.lr = 1e30\ntrain.epochs = 3\n'
    broken = broken.replace("seeds = [0, 1]", "seeds = [0]")
    run = start(broken, finished.store.root)
    failed = run.run_on(Inline())
    found = run.results()["small"]
    assert len(failed) == 2  # the training and its certification
    assert "loss is nan" in found.failed["0.25/broken/0"]
    assert len(found.certified) == 3
    assert "failed" in to_text(all_tables(found)[0])

    class Observed(Inline):
        def wait(self, seconds: float) -> list[Future[str | None]]:
            counts.append(run.status().count("failed"))
            return super().wait(seconds)

    counts: list[int] = []
    assert run.run_on(Observed()) == failed
    assert counts[0] == 0  # tried again: a failure of the last run is none of this one
    assert run.status().count("failed") > 0


# Rows without the store


def test_exported_rows_are_not_made_again_without_the_store(finished: StudyRun, tmp_path: Path) -> None:
    full = results(finished)
    some = [row for row in full.rows if (row.arm, row.seed) != ("some", 1)]
    save(replace(full, rows=tuple(some)), tmp_path / "kept")
    run, executor = start(TEXT, tmp_path / "other", tmp_path / "kept"), Inline()
    assert [row.name for row in run.missing.rows] == ["0.25/some/1"]
    assert run.run_on(executor) == {}
    assert len(executor.done) == 2  # one training, one certification
    for ours, theirs in zip(full.rows, results(run).rows, strict=True):
        assert ours.name == theirs.name
        assert ours.results is not None
        assert theirs.results is not None
        assert np.array_equal(ours.results.radius, theirs.results.radius)


def test_rows_of_neighbouring_studies_are_used(finished: StudyRun, tmp_path: Path) -> None:
    save(results(finished), tmp_path / "first")
    assert start(TEXT, tmp_path / "a", tmp_path / "second").missing.rows == ()
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "study.json").write_text("{}")
    assert start(TEXT, tmp_path / "b", tmp_path / "second").missing.rows == ()
    next((tmp_path / "first" / "rows").iterdir()).write_bytes(b"damaged")
    notes: list[str] = []
    run = StudyRun(
        {"small": finished.plan}, StudyStore(tmp_path / "c"), {"small": tmp_path / "second"}, notes.append
    )
    assert len(run.missing.rows) == 6  # a damaged study gives no rows
    assert [name for name in ("first", "foreign") if name in " ".join(notes)] == ["first", "foreign"]
    with pytest.raises(LedgerError, match="was changed"):
        start(TEXT, tmp_path / "d", tmp_path / "first")


def test_rows_are_exported_while_the_study_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Inline):
        """Ends the process, as it were, after the first certification."""

        def __init__(self, *_: object) -> None:
            super().__init__()

        def wait(self, seconds: float) -> list[Future[str | None]]:
            if any(isinstance(job.item, Certification) for job in certified):
                raise KeyboardInterrupt
            certified.extend(job for _, job, _ in self.jobs[:1])
            return super().wait(seconds)

    certified: list[StudyJob] = []
    monkeypatch.setattr("smoothheads.runs.executors.ProcessExecutor", Broken)
    monkeypatch.setattr("smoothheads.studies.run.STATUS_SECONDS", 0.0)
    (tmp_path / "small.toml").write_text(TEXT)
    command = ["study", str(tmp_path / "small.toml"), "--store", str(tmp_path / "store")]
    assert main([*command, "--out", str(tmp_path / "kept")]) != 0
    assert [row.name for row in saved.load(tmp_path / "kept").certified] == ["0.25/some/0"]


def test_two_studies_that_export_to_one_folder_keep_each_others_rows(
    finished: StudyRun, tmp_path: Path
) -> None:
    """On two machines with a store each: what one made after the other had begun was removed."""
    out = tmp_path / "kept"
    empty = start(TEXT, tmp_path / "other", out)
    empty.export()
    assert not saved.load(out).certified
    start(TEXT, finished.store.root, out).export()
    empty.export()  # the one that has made nothing yet
    assert to_text(headline(saved.load(out))) == to_text(headline(results(finished)))


def test_damaged_row_of_the_store_is_made_again_from_its_ledger(finished: StudyRun, tmp_path: Path) -> None:
    before = to_text(headline(results(finished)))
    for path in (finished.store.root / "rows").glob("*.tsv.gz"):
        path.write_bytes(b"damaged")
    assert to_text(headline(results(finished))) == before


# Progress


def test_status_writes_nothing(finished: StudyRun, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text(TEXT)
    command = ["study", str(tmp_path / "small.toml"), "--store", str(finished.store.root)]
    assert main([*command, "--status", "--out", str(tmp_path / "kept")]) == 0
    assert not (tmp_path / "kept").exists()


def test_empty_tables_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "small.toml").write_text(TEXT)
    command = ["study", str(tmp_path / "small.toml"), "--store", str(tmp_path / "store"), "--status"]
    assert main(command) == 0
    shown = capsys.readouterr()
    assert "not yet" in shown.out
    assert "Cost" not in shown.out
    assert "Gains" not in shown.out
    assert "trainings: 6, 0 of them finished; certifications: 4, 0 of them finished; running: 0" in shown.err


def test_plan_estimates_the_time_without_a_trial_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("smoothheads.studies.jobs.train_run", lambda *_, **__: pytest.fail("a training"))
    (tmp_path / "small.toml").write_text(TEXT)
    command = ["study", str(tmp_path / "small.toml"), "--store", str(tmp_path / "store"), "--plan"]
    assert main(command) == 0
    shown = capsys.readouterr().err
    assert "trainings: 6, 0 of them finished" in shown
    assert " left with " in shown


def train_epochs(run: StudyRun, item: Item, *seconds: float, finished: bool = True) -> None:
    """Writes what a training leaves on the disk after epochs that took so long."""
    folder = run.store.artefact(item)
    folder.mkdir(parents=True)
    (folder / METRICS).write_text("".join(f'{{"seconds": {each}}}\n' for each in seconds))
    if finished:
        run.store.finish(item, {"seconds": sum(seconds)})


def test_time_left_is_estimated_from_the_arithmetic_before_anything_is_measured(tmp_path: Path) -> None:
    run = start(TEXT, tmp_path)
    run.seconds_per_gmac = 2.0
    total = sum(studies.item_work(item, run.plan.images) for item in run.plan.items)
    assert run.status().seconds_left == pytest.approx(2.0 * total)


def test_time_left_follows_finished_items(tmp_path: Path) -> None:
    run = start(TEXT, tmp_path)
    first = next(item for item in run.plan.items if isinstance(item, Training))
    work = {item.key: studies.item_work(item, run.plan.images) for item in run.plan.items}
    train_epochs(run, first, 30.0)
    pace = 30.0 / work[first.key]
    assert run.status().seconds_left == pytest.approx(pace * (sum(work.values()) - work[first.key]))


def test_time_left_follows_the_epochs_of_a_running_training(tmp_path: Path) -> None:
    run = start(TEXT.replace("train.epochs = 1", "train.epochs = 4"), tmp_path)
    first = next(item for item in run.plan.items if isinstance(item, Training))
    work = {item.key: studies.item_work(item, run.plan.images) for item in run.plan.items}
    train_epochs(run, first, 5.0, finished=False)
    pace = 5.0 / (work[first.key] / 4)
    assert run.status().seconds_left == pytest.approx(pace * (sum(work.values()) - work[first.key] / 4))


def test_longer_items_weigh_more_in_the_time_left(tmp_path: Path) -> None:
    long = start(TEXT.replace("[arms.some]\n", "[arms.some]\ntrain.epochs = 100\n"), tmp_path)
    work = {item: studies.item_work(item, long.plan.images) for item in long.plan.items}
    trainings = [item for item in work if isinstance(item, Training)]
    for item in trainings:
        if item.config.train.epochs == 1:
            train_epochs(long, item, 1.0)
    left = sum(work[item] for item in work if long.store.facts(item) is None)
    done = sum(work[item] for item in trainings if item.config.train.epochs == 1)
    assert long.status().seconds_left == pytest.approx(4.0 / done * left)
    assert long.status().seconds_left > 200


def test_time_left_follows_running_certifications(finished: StudyRun, tmp_path: Path) -> None:
    """How many samples an image takes is not known before; the first ledger had to end before it counted."""
    run = start(TEXT, tmp_path)
    certifications = [item for item in run.plan.items if isinstance(item, Certification)]
    for item in run.plan.items:
        if not isinstance(item, Certification):
            run.store.finish(item, {})
    made, ledger = finished.store.artefact(certifications[0]), run.store.artefact(certifications[0])
    ledger.mkdir(parents=True)
    (ledger / "manifest.json").write_text((made / "manifest.json").read_text())
    head, *rows = (made / "ledger.tsv").read_text().splitlines()
    cells = [row.split("\t") for row in rows[: len(rows) // 2]]
    slow = ["\t".join([*row[:5], "0:01:40", *row[6:]]) for row in cells]
    (ledger / "ledger.tsv").write_text("\n".join([head, *slow]) + "\n")
    work = [studies.item_work(item, run.plan.images) for item in certifications]
    fraction = len(slow) / len(rows)
    left = 100 * len(slow) / (fraction * work[0]) * (sum(work) - fraction * work[0])
    assert run.status().seconds_left == pytest.approx(left)
    (ledger / "ledger.tsv").write_text("\n".join([head, *slow]) + "\n12\t3")  # a torn line
    assert run.status().seconds_left == pytest.approx(left)
