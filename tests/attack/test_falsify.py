from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from smoothheads.attack.ascend import squared_distance
from smoothheads.attack.falsify import falsify, judging, outcome
from smoothheads.attack.outcome import Attacked, AttackOutcome, Claim
from smoothheads.attack.settings import AttackSettings
from smoothheads.certify.algorithm import Prediction
from smoothheads.certify.bounds import squared_grid_budget
from smoothheads.certify.budgets import FixedBudget
from smoothheads.certify.certifier import Certifier
from smoothheads.certify.config import CertifyConfig
from smoothheads.data import Dataset
from smoothheads.errors import ConfigError, DataError
from smoothheads.smoothed import Smoothed
from smoothheads.types import ABSTAIN, Pixels

SIGMA = 0.25
CERTIFIED = CertifyConfig(sigma=SIGMA, seed=0, n0=50, n=1000)
QUICK = AttackSettings(steps=6, draws=8, n=1000)


def true_claims(half_space: Any, scale: float = 1.0) -> list[Claim]:
    """What holds exactly for every image, times `scale`."""
    labels = half_space.data.labels.tolist()
    return [
        Claim(i, label, label, scale * abs(float(half_space.distance[i]))) for i, label in enumerate(labels)
    ]


def run(
    half_space: Any, claims: list[Claim], settings: AttackSettings = QUICK, data: Dataset | None = None
) -> AttackOutcome:
    attacked = list(falsify(half_space.model, data or half_space.data, claims, CERTIFIED, settings))
    return outcome(attacked, 255, CERTIFIED, settings)


def test_certificates_of_a_linear_network_stand(half_space: Any) -> None:
    found = Smoothed(half_space.model, half_space.data.info, CERTIFIED).certify(half_space.data)
    claims = [Claim(c.index, c.label, c.certificate.prediction, c.certificate.radius) for c in found]
    assert sum(not claim.abstained for claim in claims) >= 6
    outcome = run(half_space, claims, replace(QUICK, radii=(0.01,)))
    assert not outcome.violations
    assert outcome.p_value == 1
    for each in outcome.attacked:
        if not each.claim.abstained:
            assert each.budget == squared_grid_budget(each.claim.radius, 255)
            assert each.inside is not None
            assert 0.99 * each.budget < each.inside <= each.budget


def test_the_nearest_other_answer_lies_just_beyond_the_true_distance(half_space: Any) -> None:
    """PREDICT needs 0.13 sigma beyond the hyperplane to be sure; halving adds a sixteenth of the gap."""
    claims = true_claims(half_space, scale=0.5)
    for each in run(half_space, claims).attacked:
        distance = abs(float(half_space.distance[each.claim.index]))
        assert each.broken is not None
        assert each.answer == 1 - each.claim.label
        assert distance < each.broken**0.5 / 255 < distance + 0.3 * SIGMA
        assert not each.violated


def test_without_halvings_the_distance_is_that_of_the_radius(half_space: Any) -> None:
    settings = replace(QUICK, radii=(1.0, 0.9, 0.05), halvings=0, losses=("smoothed",))
    for each in run(half_space, true_claims(half_space, 0.5), settings).attacked:
        assert each.broken is not None
        assert 0.99 * squared_grid_budget(0.9, 255) < each.broken <= squared_grid_budget(0.9, 255)


@pytest.mark.parametrize("loss", ["smoothed", "expected-ce"])
def test_false_certificates_are_exposed(half_space: Any, loss: Any) -> None:
    outcome = run(half_space, true_claims(half_space, scale=2), replace(QUICK, losses=(loss,)))
    assert len(outcome.violations) == len(half_space.data)
    assert outcome.refuted
    assert outcome.p_value < 1e-15
    for each in outcome.violations:
        assert each.answer == 1 - each.claim.prediction
        assert each.broken is not None
        distance = abs(float(half_space.distance[each.claim.index]))
        assert distance < each.broken**0.5 / 255 < distance + 0.4 * SIGMA < 2 * distance
        assert each.inside is not None
        assert 0.99 * each.budget < each.inside <= each.budget
    assert outcome.empirical_accuracy([0.5])[0] < outcome.certified_accuracy([0.5])[0]


def test_one_false_certificate_among_true_ones_is_the_one_named(half_space: Any) -> None:
    claims = true_claims(half_space, 0.9)
    claims[3] = replace(claims[3], radius=2 * claims[3].radius)
    outcome = run(half_space, claims, replace(QUICK, radii=(0.01,)))
    assert [each.claim.index for each in outcome.violations] == [3]
    assert not outcome.refuted  # one in eight may be alpha's due: p is about 0.02


def test_an_abstention_at_the_attacked_image_is_no_violation(half_space: Any) -> None:
    """The ball reaches a hair beyond the hyperplane, where the smoothed classifier is undecided."""
    claims = true_claims(half_space, scale=1.02)
    assert not run(half_space, claims, replace(QUICK, radii=(0.01,))).violations


def test_abstentions_are_counted_but_not_attacked(half_space: Any) -> None:
    claims = [replace(claim, prediction=ABSTAIN, radius=0.0) for claim in true_claims(half_space)]
    outcome = run(half_space, claims)
    assert outcome.attacked == tuple(Attacked(claim, -1) for claim in claims)
    assert outcome.empirical_accuracy([0.0]) == 0


def test_wrong_answers_are_attacked_inside_alone(half_space: Any) -> None:
    """The image is of class 1, as certified; its label says otherwise."""
    labels = 1 - half_space.data.labels
    wrong = replace(half_space.data, labels=labels)
    claims = [
        Claim(i, int(label), 1 - int(label), 0.5 * abs(half_space.distance[i]))
        for i, label in enumerate(labels)
    ]
    outcome = run(half_space, claims, data=wrong)
    assert all(each.inside and each.broken is None for each in outcome.attacked)
    assert outcome.empirical_accuracy([0.0]) == 0


def test_a_radius_rounded_down_to_nothing_is_attacked_outside(half_space: Any) -> None:
    (each,) = run(half_space, [replace(true_claims(half_space)[0], radius=0.0)]).attacked
    assert (each.budget, each.inside) == (-1, None)
    assert each.broken is not None
    assert not each.violated


def test_results_depend_on_the_seed_and_the_image_alone(half_space: Any) -> None:
    claims = true_claims(half_space, 0.5)[:3]
    settings = replace(QUICK, radii=(0.8,), losses=("smoothed",), halvings=9)
    whole = run(half_space, claims, settings).attacked
    assert all(each.broken for each in whole)
    assert run(half_space, claims[1:2], settings).attacked == whole[1:2]
    assert run(half_space, claims[::-1], settings).attacked == whole[::-1]
    assert run(half_space, claims, replace(settings, seed=1)).attacked != whole


def test_the_judge_has_noise_of_its_own() -> None:
    table = CertifyConfig(
        sigma=SIGMA, seed=0, budget="table", radii=(0.25,), label_aware=True, aggregation="head-2"
    )
    judge = judging(table, AttackSettings(n=500, alpha=0.01))
    assert (judge.plan, judge.alpha, judge.aggregation) == (FixedBudget(n=500), 0.01, "head-2")
    seeds = {judging(replace(table, seed=s), AttackSettings(seed=t)).seed for s in (0, 1) for t in (0, 1)}
    assert len(seeds) == 2
    assert not seeds & {0, 1}


def test_the_level_counts_the_certificate_and_every_judgement_inside(half_space: Any) -> None:
    claims = true_claims(half_space, 0.5)[:1]
    assert run(half_space, claims).level == pytest.approx(0.001 + 2 * 0.001)
    assert run(half_space, claims, replace(QUICK, losses=("smoothed",), alpha=0.01)).level == 0.011


def test_no_more_is_judged_inside_than_the_level_counts(
    half_space: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A radius so little beyond the certified one that the grid has no image between them."""
    claim = true_claims(half_space, 0.5)[0]
    judged: list[int] = []
    predict = Certifier.predict

    def counted(self: Certifier, image: Pixels) -> Prediction:
        judged.append(squared_distance(half_space.data.image(0), image))
        return predict(self, image)

    monkeypatch.setattr(Certifier, "predict", counted)
    (each,) = run(half_space, [claim], replace(QUICK, radii=(claim.radius * (1 + 1e-12),))).attacked
    assert len(judged) == 2
    assert max(judged) <= each.budget


def settings_of(model: torch.nn.Module) -> Iterator[object]:
    yield [module.training for module in model.modules()]
    yield [parameter.requires_grad for parameter in model.parameters()]
    yield [value.numpy().tobytes() for value in model.state_dict().values()]


def test_the_model_is_given_back_as_it_was_also_after_an_error(half_space: Any) -> None:
    model = half_space.model.train()
    model.heads[0].eval()
    model.heads[1].normal.requires_grad_(False)
    before = list(settings_of(model))
    run(half_space, true_claims(half_space)[:1])
    assert list(settings_of(model)) == before

    attacks = falsify(model, half_space.data, true_claims(half_space)[:1], CERTIFIED, QUICK)
    next(attacks)
    assert list(settings_of(model)) != before
    attacks.close()  # as an error of the caller does
    assert list(settings_of(model)) == before


def test_claims_about_other_data_are_refused(half_space: Any) -> None:
    claim = true_claims(half_space)[0]
    with pytest.raises(DataError, match="Image 99 of arrays is not there"):
        run(half_space, [replace(claim, index=99)])
    with pytest.raises(DataError, match="Image 0 of arrays has label 0, and the ledger says label 1"):
        run(half_space, [replace(claim, label=1)])


@pytest.mark.parametrize("noise", ["uniform", "laplace"])
def test_certificates_in_another_norm_are_refused(half_space: Any, noise: Any) -> None:
    certified = CERTIFIED.changed(noise=noise)
    with pytest.raises(ConfigError, match="gives l1 ones"):
        next(falsify(half_space.model, half_space.data, true_claims(half_space), certified, QUICK))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": 0}, "steps >= 1"),
        ({"draws": 0}, "draws >= 1"),
        ({"n": 0}, "n >= 1"),
        ({"alpha": 0.5}, "alpha"),
        ({"halvings": -1}, "halvings >= 0"),
        ({"radii": (0.5, 0.0)}, "every radius > 0"),
        ({"radii": (np.nan,)}, "every radius > 0"),
        ({"losses": ()}, "Name at least one loss, and none twice"),
        ({"losses": ("smoothed", "smoothed")}, "Name at least one loss, and none twice"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AttackSettings(**wrong)
