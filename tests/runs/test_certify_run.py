from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from smoothheads import checkpoint
from smoothheads.checkpoint import Checkpoint
from smoothheads.config import CertifyConfig, DataConfig, ModelConfig, RunConfig, SubsetConfig
from smoothheads.data import Dataset, Splits, select
from smoothheads.errors import DataError, LedgerError
from smoothheads.models import MultiHead
from smoothheads.results.cohen import read_log
from smoothheads.results.row import Row
from smoothheads.runs.certify import certification_images, certify_run

CONFIG = CertifyConfig(sigma=0.5, n0=20, n=100, block=20)


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
    def interrupt(_: Row, done: int, __: int) -> None:
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
    with pytest.raises(LedgerError, match=r"certify\.sigma 0\.5.*got certify\.sigma 0\.25"):
        certify_run(ready, images, replace(CONFIG, sigma=0.25), out)
    with pytest.raises(LedgerError, match="weights"):
        certify_run(replace(ready, weights_hash="0" * 64), images, CONFIG, out)
    with pytest.raises(LedgerError, match=r"indices|fingerprint"):
        certify_run(ready, select(images, SubsetConfig(first=3)), CONFIG, out)


def test_images_of_another_kind_are_refused(ready: Checkpoint) -> None:
    with pytest.raises(DataError, match=r"images of shape \(1, 8, 8\), as in training, got \(1, 4, 4\)"):
        certification_images(ready, DataConfig(name="digits", downscale=2), SubsetConfig())


def test_a_clock_that_goes_backwards_changes_nothing(
    tmp_path: Path, ready: Checkpoint, images: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = certify_run(ready, images, CONFIG, tmp_path / "whole")
    ticks = itertools.count()
    monkeypatch.setattr(time, "time", lambda: 2e9 - 1000 * next(ticks))
    broken = certify_run(ready, images, CONFIG, tmp_path / "broken")
    assert without_time(broken) == without_time(whole)
    assert (read_log(broken).seconds >= 0).all()
