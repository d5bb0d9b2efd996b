from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmarks.recorded import Record, Recorded, Replay, record, start

from smoothheads.certify.config import CertifyConfig
from smoothheads.data import Dataset, Splits, SubsetConfig, select
from smoothheads.models.multihead import MultiHead
from smoothheads.smoothed import Smoothed
from smoothheads.types import Phase

CONFIG = CertifyConfig(sigma=0.5, seed=0, n0=100, n=600, block=100)
BUDGETS: list[dict[str, Any]] = [
    {},
    {"budget": "table"},
    {"budget": "table", "label_aware": True},
    {"budget": "radius", "tolerance": 0.1},
    {"budget": "anytime", "target": 0.1},
]


@pytest.fixture(scope="module")
def images(small_digits: Splits) -> Dataset:
    return select(small_digits.test, SubsetConfig(first=2))


@pytest.fixture
def network(tiny_network: Callable[..., MultiHead]) -> MultiHead:
    return tiny_network(heads=2)


def test_a_replay_gives_the_certificate_of_the_network(
    network: MultiHead, images: Dataset, tmp_path: Path
) -> None:
    smoothed = Smoothed(network, images.info, CONFIG)
    start(tmp_path, smoothed, weights="abc")
    assert len(list(record(tmp_path, smoothed, images))) == 2
    assert list(record(tmp_path, smoothed, images)) == []  # what is there is not computed again
    recording = Record.read(tmp_path)
    assert recording.config == CONFIG.resolved()
    assert recording.facts["weights"] == "abc"
    for changes in BUDGETS:
        again = Smoothed(network, images.info, CertifyConfig(sigma=0.5, seed=0, n=600, block=100, **changes))
        for position, image in enumerate(recording.images):
            label = int(images.labels[position])
            expected = again.certify_image(images.image(position), image.index, label=label).certificate
            assert recording.certify(image, **changes) == expected
    with pytest.raises(ValueError, match="another"):
        start(tmp_path, smoothed, weights="def")


def counted(votes: list[list[int]]) -> Recorded:
    blocks = {phase: np.array(votes, dtype=np.int16) for phase in (Phase.SELECTION, Phase.ESTIMATION)}
    return Recorded(0, 0, blocks)


def test_replay_goes_on_where_each_phase_stopped() -> None:
    sample = Replay(counted([[9, 1], [5, 5], [0, 10]]))
    assert sample(Phase.ESTIMATION, 20).tolist() == [14, 6]
    assert sample(Phase.SELECTION, 10).tolist() == [9, 1]
    assert sample(Phase.ESTIMATION, 10).tolist() == [0, 10]
    with pytest.raises(ValueError, match="recorded"):
        sample(Phase.ESTIMATION, 10)


def test_replay_refuses_part_of_a_block() -> None:
    with pytest.raises(ValueError, match="whole blocks of 10"):
        Replay(counted([[9, 1]]))(Phase.ESTIMATION, 5)


def test_another_order_has_the_same_votes() -> None:
    image = counted([[i, 20 - i] for i in range(20)])
    other = image.reordered(np.random.default_rng(0))
    for phase in image.blocks:
        assert not np.array_equal(image.blocks[phase], other.blocks[phase])
        assert np.array_equal(np.sort(image.blocks[phase], axis=0), np.sort(other.blocks[phase], axis=0))
    total = Replay(image)(Phase.ESTIMATION, 400)
    assert np.array_equal(total, Replay(other)(Phase.ESTIMATION, 400))
