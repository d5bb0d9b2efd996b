from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from smoothheads import checkpoint, files
from smoothheads.certify.config import CertifyConfig
from smoothheads.checkpoint import Checkpoint
from smoothheads.data import Dataset, Splits, SubsetConfig, named, select
from smoothheads.errors import DataError, HeldError, LedgerError
from smoothheads.models import ModelConfig
from smoothheads.models.multihead import MultiHead
from smoothheads.results.read import read_log
from smoothheads.runs.certify import certification_images, certify_run
from smoothheads.training import RunConfig
from smoothheads.types import Certified

CONFIG = CertifyConfig(sigma=0.5, seed=0, n0=20, n=100, block=20)


@pytest.fixture
def ready(tmp_path: Path, tiny_network: Callable[..., MultiHead], small_digits: Splits) -> Checkpoint:
    run = RunConfig(model=ModelConfig(arch="resnet8", heads=2))
    checkpoint.save(tmp_path / "network", tiny_network(heads=2), run, small_digits.train.info)
    return checkpoint.load(tmp_path / "network")


@pytest.fixture
def images(small_digits: Splits) -> Dataset:
    return select(small_digits.test, SubsetConfig(every=7, first=8))


def without_time(out: Path) -> list[list[str]]:
    lines = (out / "ledger.tsv").read_text().splitlines()
    return [[word for i, word in enumerate(line.split("\t")) if i != 5] for line in lines]


def test_every_image_is_certified_in_order(tmp_path: Path, ready: Checkpoint, images: Dataset) -> None:
    log = read_log(certify_run(ready, images, CONFIG, tmp_path / "ledger"))
    assert log.index.tolist() == list(range(0, 56, 7))
    assert log.label.tolist() == images.labels.tolist()
    assert (log.sigma, log.n, log.alpha) == (0.5, 100, 0.001)


@pytest.mark.parametrize("stop", [1, 5, 8])
def test_an_interrupted_run_goes_on_to_the_same_bytes(
    tmp_path: Path, ready: Checkpoint, images: Dataset, stop: int
) -> None:
    def interrupt(_: Certified, done: int, __: int) -> None:
        if done == stop:
            raise KeyboardInterrupt

    certify_run(ready, images, CONFIG, tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        certify_run(ready, images, CONFIG, tmp_path / "broken", on_row=interrupt)
    seen: list[int] = []
    certify_run(ready, images, CONFIG, tmp_path / "broken", on_row=lambda row, _, __: seen.append(row.index))
    assert len(seen) == 8 - stop
    assert without_time(tmp_path / "broken") == without_time(tmp_path / "whole")


def test_other_settings_or_weights_are_refused(tmp_path: Path, ready: Checkpoint, images: Dataset) -> None:
    out = certify_run(ready, images, CONFIG, tmp_path / "ledger")
    with pytest.raises(LedgerError, match=r"certify\.sigma = 0\.25 instead of 0\.5"):
        certify_run(ready, images, CONFIG.changed(sigma=0.25), out)
    with pytest.raises(LedgerError, match="weights"):
        certify_run(replace(ready, weights_hash="0" * 64), images, CONFIG, out)
    with pytest.raises(LedgerError, match=r"indices|fingerprint"):
        certify_run(ready, select(images, SubsetConfig(first=3)), CONFIG, out)


def test_images_of_another_kind_are_refused(ready: Checkpoint) -> None:
    with pytest.raises(
        DataError, match=r"trained on images of shape \(1, 8, 8\), and these have \(1, 4, 4\)"
    ):
        certification_images(ready, SubsetConfig(), data=named("digits", downscale=2))


def test_a_clock_that_goes_backwards_changes_nothing(
    tmp_path: Path, ready: Checkpoint, images: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = certify_run(ready, images, CONFIG, tmp_path / "whole")
    ticks = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 2e9 - 1000 * next(ticks))
    broken = certify_run(ready, images, CONFIG, tmp_path / "broken")
    assert without_time(broken) == without_time(whole)
    assert (read_log(broken).seconds >= 0).all()


def own_set(path: Path, names: list[str], seed: int = 0) -> str:
    rng = np.random.default_rng(seed)
    images, labels = rng.integers(0, 17, (20, 8, 8), dtype=np.uint8), np.arange(20) % 10
    np.savez(path, test_images=images, test_labels=labels, max_value=16, class_names=np.array(names))
    return str(path)


def test_another_data_set_than_that_of_training_is_seen(tmp_path: Path, ready: Checkpoint) -> None:
    notes: list[str] = []
    names = [str(number) for number in range(10)]
    same = named("npz", root=own_set(tmp_path / "same.npz", names))
    other = named("npz", root=own_set(tmp_path / "other.npz", names, seed=1))
    fingerprint = certification_images(ready, SubsetConfig(), data=same).fingerprint
    trained = replace(ready, manifest={"test_data": {"name": "same", "fingerprint": fingerprint}})
    certification_images(trained, SubsetConfig(first=2), data=same, on_note=notes.append)
    assert not notes
    certification_images(trained, SubsetConfig(first=2), data=other, on_note=notes.append)
    assert "not the test images of the training (same): here other, 20 images" in notes[0]


def test_classes_of_another_meaning_are_refused(tmp_path: Path, ready: Checkpoint) -> None:
    animals = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay"]
    named_ready = replace(ready, info=replace(ready.info, class_names=tuple(animals)))
    data = named("npz", root=own_set(tmp_path / "own.npz", animals[::-1]))
    with pytest.raises(DataError, match="name of class 0 ant, and these have jay"):
        certification_images(named_ready, SubsetConfig(), data=data)
    certification_images(ready, SubsetConfig(), data=data)  # trained on plain numbers: nothing can be said


def test_a_folder_that_another_machine_took_over_gets_no_more_rows(
    tmp_path: Path, ready: Checkpoint, images: Dataset
) -> None:
    """On a shared disk without locks two machines may both hold it; only one goes on."""

    def take_over(_: Certified, done: int, __: int) -> None:
        if done == 3:
            (tmp_path / "out" / files.LOCK).write_text("process 7 on elsewhere (00000000-11111111)")

    with pytest.raises(HeldError, match="was taken over by process 7 on elsewhere"):
        certify_run(ready, images, CONFIG, tmp_path / "out", on_row=take_over)
    assert len(without_time(tmp_path / "out")) == 1 + 3
