"""What a study needs: each network once, rows from one ledger where that is the same."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.studies.small import TEXT, study

from smoothheads.errors import DataError
from smoothheads.studies.jobs import plan_study
from smoothheads.studies.plan import Certification, Joining, StudyPlan, Training, make_plan
from smoothheads.studies.spec import Study


def planned(found: Study) -> StudyPlan:
    return make_plan(found, lambda data: "fingerprint", "images")


def count(plan: StudyPlan, kind: type) -> int:
    return sum(isinstance(item, kind) for item in plan.items)


def test_single_network_is_read_from_its_ensembles_ledger() -> None:
    plan = planned(study())
    assert count(plan, Training) == 2 * (2 + 1)
    assert count(plan, Joining) == 2
    assert count(plan, Certification) == 2 * 2
    rows = {row.name: row for row in plan.rows}
    assert rows["0.25/single/0"].aggregation == "head-1"
    assert rows["0.25/single/0"].certification == rows["0.25/pair/0"].certification
    assert rows["0.25/some/0"].aggregation == "ensemble"


def test_smaller_ensemble_is_a_prefix_of_a_larger_one() -> None:
    plan = planned(study(TEXT + "[arms.four]\nmembers = 4\n"))
    assert {row.arm: row.aggregation for row in plan.rows} == {
        "single": "head-1", "pair": "prefix-2", "some": "ensemble", "four": "ensemble",
    }  # fmt: skip


def test_adaptive_budgets_share_no_ledger() -> None:
    plan = planned(study(TEXT.replace("n0 = 20", 'budget = "radius"')))
    assert {row.aggregation for row in plan.rows} == {"ensemble"}
    assert count(plan, Certification) == 6


def test_ensembles_of_several_heads_share_no_ledger() -> None:
    """prefix-2 of three networks with two heads each are the two heads of the first."""
    text = TEXT.replace('recipe = "digits-single"', 'recipe = "digits-some"\nmodel.heads = 2')
    plan = planned(study(text + "[arms.three]\nmembers = 3\n"))
    assert {row.aggregation for row in plan.rows} == {"ensemble"}


@pytest.mark.parametrize(
    ("aggregation", "heads"),
    [("ensemble", 5), ("head-2", 1), ("prefix-3", 3), ("consensus-2", 5), ("prefix-best", 5)],
)
def test_model_of_a_row_has_the_heads_of_its_aggregation(aggregation: str, heads: int) -> None:
    plan = planned(study())
    row = next(row for row in plan.rows if row.arm == "some")
    config = replace(row.network.config, model=replace(row.network.model, heads=5))  # type: ignore[union-attr]
    network = Training("five", config)
    own = replace(row.own, config=replace(row.own.config, aggregation=aggregation))
    assert replace(row, network=network, own=own).model.heads == heads


def test_other_aggregation_is_read_from_the_same_votes() -> None:
    plan = planned(
        study(TEXT + '[arms.first]\nrecipe = "digits-some"\nmodel.heads = 2\naggregation = "head-1"\n')
    )
    rows = {row.name: row for row in plan.rows}
    assert rows["0.25/first/0"].certification == rows["0.25/some/0"].certification
    assert rows["0.25/first/0"].aggregation == "head-1"


def test_keys_depend_on_settings_and_data_alone() -> None:
    def keys(text: str, data: str = "fingerprint") -> list[str]:
        return [item.key for item in make_plan(study(text), lambda _: data, "images").items]

    assert keys(TEXT) == keys(TEXT.replace("Small", "Other").replace("[all]", '[all]\ndata.root = "/x"'))
    assert not set(keys(TEXT)) & set(keys(TEXT, "other"))
    assert not set(keys(TEXT)) & set(keys(TEXT.replace("epochs = 1", "epochs = 2")))


def test_root_outside_of_the_file() -> None:
    moved = study().at("/elsewhere")
    assert {item.config.data.root for item in planned(moved).items if isinstance(item, Training)} == {
        "/elsewhere"
    }
    assert [item.key for item in planned(moved).items] == [item.key for item in planned(study()).items]


def test_items_come_after_what_they_need() -> None:
    plan = planned(study(TEXT + '[arms.fine]\nrecipe = "digits-single"\nstart = "single"\n'))
    seen: set[str] = set()
    for item in plan.items:
        assert {before.key for before in item.needs} <= seen
        seen.add(item.key)


def test_longest_row_of_each_seed_comes_first() -> None:
    plan = planned(study(TEXT.replace("n0 = 20", 'budget = "radius"')))  # three ledgers of each seed
    dear = {item.key: 10.0 for item in plan.items if isinstance(item, Joining)}
    cheap = {row.certification.key: 5.0 for row in plan.rows if row.arm == "some"}
    ordered = plan.longest_first(dear | cheap)
    assert [row.name for row in ordered.rows] == [
        f"0.25/{arm}/{seed}" for seed in (0, 1) for arm in ("pair", "some", "single")
    ]
    assert {item.key for item in ordered.items} == {item.key for item in plan.items}


def test_ensembles_of_different_seeds_share_no_member() -> None:
    seeds = {item.config.train.seed for item in planned(study()).items if isinstance(item, Training)}
    assert seeds == {0, 1, 1000, 1001}


def test_trained_on_images_and_different_images_are_refused() -> None:
    with pytest.raises(DataError, match="are trained on"):
        plan_study(
            study(TEXT.replace("[images]", '[images]\nsplit = "train"').replace("offset = 3", "offset = 0"))
        )
    plan = plan_study(
        study(TEXT.replace("[images]", '[images]\nsplit = "train"\nfirst = 5').replace("3", "50", 1))
    )
    assert plan.images == 5
    with pytest.raises(DataError, match="different images to certify"):
        plan_study(study(TEXT + "[settings.a]\n[settings.b]\ndata.downscale = 2\n"))
    assert replace(plan.study, name="x").name == "x"
