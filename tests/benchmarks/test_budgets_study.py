from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from benchmarks.budgets import Outcome, Pooled, Study, cell_table, cost_table, goal_table, replay, shuffled
from benchmarks.recorded import PILOT, Record, Recorded

from smoothheads.certify.config import CertifyConfig
from smoothheads.report.table import to_json
from smoothheads.types import Phase

CONFIG = CertifyConfig(sigma=0.5, seed=0, n=2000, block=100)


def image(index: int, hits_per_block: int, label: int = 0) -> Recorded:
    votes = np.array([[hits_per_block, 100 - hits_per_block]], dtype=np.int16)
    sizes = {Phase.SELECTION: 1, Phase.PILOT: PILOT // 100, Phase.ESTIMATION: 20}
    return Recorded(index, label, {phase: votes.repeat(count, axis=0) for phase, count in sizes.items()})


def made(images: Sequence[Recorded]) -> Record:
    return Record(CONFIG, 0.0, {}, tuple(images))


@pytest.fixture(scope="module")
def study() -> Study:
    """Sure and right, sure and wrong, undecided."""
    return Study.of(made([image(0, 100), image(1, 100, label=1), image(2, 50)]), orders=2)


def test_samples_are_all_votes_and_radii_count_where_right(study: Study) -> None:
    assert study.fixed.samples.tolist() == [[2100.0] * 3]
    assert study.fixed.right.tolist() == [[True, False, False]]
    assert study.fixed.radius[0, 0] > 1
    assert study.fixed.radius[0, 1:].tolist() == [0, 0]
    # Of the wrong image the label-aware table sees no vote for the label, and stops at the first look.
    assert study.aware.samples[:, 1].tolist() == [100.0] * 3


def test_alike_blocks_lose_the_same_in_every_order(study: Study) -> None:
    for outcome in (study.blind, study.aware, *study.single_blind):
        assert (outcome.samples == outcome.samples[0]).all()
    assert study.losses(study.fixed).tolist() == [[0.0] * len(study.radii)]


def test_accuracy_is_in_points() -> None:
    right = np.array([[True, True, False, False]])
    outcome = Outcome(np.array([[0.6, 0.2, 0.0, 0.0]]), np.ones((1, 4)), right)
    assert outcome.accuracy([0.0, 0.5, 1.0]).tolist() == [[50.0, 25.0, 0.0]]


def test_orders_begin_with_the_one_that_was_drawn() -> None:
    record = made([image(0, 100)])
    assert shuffled(record, 3)[0] is record
    assert len(replay(shuffled(record, 3)).samples) == 4


def test_pooled_counts_images_alike(study: Study) -> None:
    other = Study.of(made([image(3, 100)]), orders=2)
    pooled = Pooled.of([(study, (study.aware,)), (other, (other.aware,))])
    samples = [*study.aware.samples[0], *other.aware.samples[0]]
    assert pooled.samples == pytest.approx(np.mean(samples))
    assert len(pooled.loss) == len(pooled.loss_drawn) == 2 * len(study.radii)


def test_tables_hold_the_numbers_behind_them(study: Study) -> None:
    cost = {row["budget"]: row for row in to_json(cost_table(study))["rows"]}
    names = cost_table(study).rows[0][0].text, cost_table(study).rows[1][0].text
    assert names == ("fixed", "table")
    first = next(iter(cost.values()))
    assert set(first) == {"budget", "samples per image", "times fewer", "ACR / ACR of fixed"}
    table = cell_table(study)
    assert [cell.text for cell in table.rows[0]] == ["fixed", *["33.33"] * len(study.radii)]
    assert len(goal_table([study]).rows) == 4
