from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

from smoothheads.certify.algorithm import CertifyParams, Run, Samples
from smoothheads.certify.budgets import FixedBudget
from smoothheads.data import Splits, SubsetConfig, from_arrays, select
from smoothheads.errors import ConfigError, DataError, SoundnessError
from smoothheads.models.multihead import MultiHead
from smoothheads.smoothed import Smoothed
from smoothheads.types import Certificate, Certified, Phase

Network = Callable[..., MultiHead]
SETTINGS: dict[str, Any] = {"seed": 0, "sigma": 0.5, "n0": 50, "n": 400, "block": 50}


class Half(nn.Module):
    """Two classes, told apart by a hyperplane: the true radius is the distance to it."""

    def __init__(self, direction: Tensor, bias: float) -> None:
        super().__init__()
        self.direction, self.bias = nn.Parameter(direction), bias

    def forward(self, x: Tensor) -> Tensor:
        score = x.flatten(1) @ self.direction + self.bias
        return torch.stack([-score, score], 1)


def test_linear_networks_never_get_more_than_their_true_radius() -> None:
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (40, 1, 6, 6), dtype=np.uint8)
    data = from_arrays(images, np.zeros(40, dtype=np.int64), classes=2)
    direction = torch.from_numpy(generator.standard_normal(36).astype(np.float32))
    bias = -float(0.5 * direction.sum())
    # Three linear heads average to a linear ensemble: the same truth covers the aggregation.
    heads = [Half(direction * scale, bias * scale) for scale in (0.5, 1.0, 2.0)]
    model = MultiHead(nn.Identity(), heads)
    scores = images.reshape(40, -1) / 255 @ direction.detach().numpy() + bias
    distance = np.abs(scores) / float(direction.norm())
    found = list(Smoothed(model, data.info, seed=0, sigma=0.5, n0=100, n=2000).certify(data))
    certified = [c for c in found if not c.certificate.abstained]
    assert len(certified) > 20
    for c in certified:
        assert c.certificate.prediction == int(scores[c.index] > 0)
        assert c.certificate.radius <= distance[c.index]
    # And not much less: the bound is tight but for the samples' uncertainty.
    best = max(certified, key=lambda c: c.certificate.radius)
    p_true = norm.cdf(distance[best.index] / 0.5)
    assert best.certificate.p_lower == pytest.approx(min(p_true, 0.001 ** (1 / 2000)), abs=0.03)


@pytest.mark.parametrize("noise", ["uniform", "laplace"])
def test_an_axis_decides_and_the_l1_radius_is_the_distance(noise: str) -> None:
    """One pixel decides, so the true l1 radius is how far it is from the threshold."""
    images = np.random.default_rng(1).integers(0, 256, (30, 1, 4, 4), dtype=np.uint8)
    data = from_arrays(images, np.zeros(30, dtype=np.int64), classes=2)
    model = MultiHead(nn.Identity(), [Half(torch.eye(16)[3], -0.5), Half(2 * torch.eye(16)[3], -1.0)])
    subject = Smoothed(model, data.info, seed=0, sigma=0.25, n0=100, n=2000, noise=noise)
    assert subject.certifier.law.norm == "l1"
    found = list(subject.certify(data))
    scores = images.reshape(30, -1)[:, 3] / 255 - 0.5
    certified = [c for c in found if not c.certificate.abstained]
    assert len(certified) > 15
    for c in certified:
        assert c.certificate.prediction == int(scores[c.index] > 0)
        assert c.certificate.radius <= abs(scores[c.index])
    best = max(certified, key=lambda c: c.certificate.radius)
    reach = min(abs(scores[best.index]), np.sqrt(3) * 0.25 if noise == "uniform" else 1.0)
    assert best.certificate.radius > 0.8 * reach


def tables(found: list[Certified]) -> list[tuple[int, bytes, bytes]]:
    return [(c.index, c.selection.counts.tobytes(), c.votes.counts.tobytes()) for c in found]


def test_votes_do_not_depend_on_which_images_or_in_what_order(
    tiny_network: Network, small_digits: Splits
) -> None:
    model = tiny_network(heads=3)
    first = select(small_digits.test, SubsetConfig(first=6))
    alone = select(small_digits.test, SubsetConfig(indices=(5, 2)))
    info = first.info
    everything = tables(list(Smoothed(model, info, **SETTINGS).certify(first).rows))
    some = tables(list(Smoothed(model, info, **SETTINGS).certify(alone).rows))
    assert some == [everything[5], everything[2]]
    resumed = tables(list(Smoothed(model, info, **SETTINGS).certifier.records(first, skip={0, 1, 3, 4})))
    assert resumed == [everything[2], everything[5]]


def test_every_rule_votes_in_one_pass_and_can_be_certified(
    tiny_network: Network, small_digits: Splits
) -> None:
    model, data = tiny_network(heads=3), select(small_digits.test, SubsetConfig(first=2))
    together = list(Smoothed(model, data.info, **SETTINGS).certify(data))
    alone = MultiHead(model.trunk, [model.heads[1]], model.normalize)
    for one, found in zip(Smoothed(alone, data.info, **SETTINGS).certify(data), together, strict=True):
        assert (one.votes.for_aggregation() == found.votes.for_aggregation("head-2")).all()
        assert found.votes.counts.sum(1).tolist() == [400] * len(found.votes.aggregations)
    by_aggregation = list(Smoothed(model, data.info, aggregation="head-2", **SETTINGS).certify(data))
    assert [c.certificate.k for c in by_aggregation] == [
        int(c.votes.for_aggregation("head-2")[c.selection.for_aggregation("head-2").argmax()])
        for c in together
    ]


def test_unknown_rule_is_refused(tiny_network: Network, small_digits: Splits) -> None:
    with pytest.raises(ConfigError, match="no aggregation 'head-9'"):
        Smoothed(tiny_network(heads=3), small_digits.test.info, aggregation="head-9", **SETTINGS)


def test_too_few_samples_are_refused_before_the_first_forward(
    tiny_network: Network, small_digits: Splits
) -> None:
    with pytest.raises(ConfigError, match=r"n = 9 is too small for alpha = 0\.001: .*use n >= 10"):
        Smoothed(tiny_network(), small_digits.test.info, seed=0, sigma=0.5, n=9)


def test_an_image_of_the_wrong_size_is_refused(tiny_network: Network, small_digits: Splits) -> None:
    subject = Smoothed(tiny_network(), small_digits.test.info, **SETTINGS)
    with pytest.raises(DataError, match=r"1x8x8 .*shape \(1, 8, 9\); resize"):
        subject.predict(np.zeros((1, 8, 9), dtype=np.uint8))


def test_the_same_image_gets_the_same_answer_without_an_index(
    tiny_network: Network, small_digits: Splits
) -> None:
    subject = Smoothed(tiny_network(), small_digits.test.info, **SETTINGS)
    image = small_digits.test.image(0)
    assert (subject.predict(image).votes == subject.predict(image.copy()).votes).all()
    assert (subject.predict(image).votes != subject.predict(small_digits.test.image(1)).votes).any()


def test_the_model_comes_back_in_the_mode_it_was_given_in(
    tiny_network: Network, small_digits: Splits
) -> None:
    model, data = tiny_network(heads=2), select(small_digits.test, SubsetConfig(first=1))
    for training in (True, False):
        model.train(training)
        list(Smoothed(model, data.info, **SETTINGS).certify(data))
        assert all(module.training == training for module in model.modules())


def test_the_model_given_in_train_mode_is_evaluated(tiny_network: Network, small_digits: Splits) -> None:
    model = tiny_network().train()
    data = select(small_digits.test, SubsetConfig(first=1))
    before = [value.clone() for value in model.buffers()]
    list(Smoothed(model, data.info, **SETTINGS).certify(data))
    assert all(torch.equal(a, b) for a, b in zip(before, model.buffers(), strict=True))


def test_a_radius_above_what_n_votes_can_show_is_never_returned(
    tiny_network: Network, small_digits: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Boastful(FixedBudget):
        def run(self, params: CertifyParams) -> Run[Certificate]:
            yield Samples(Phase.SELECTION, 50)
            return Certificate(1, 9.9, 0.99, 400, 400, 50)

    subject = Smoothed(tiny_network(), small_digits.test.info, **SETTINGS)
    monkeypatch.setattr(subject.certifier, "budget", Boastful(n=400))
    with pytest.raises(
        SoundnessError, match=r"radius 9\.9 of image 0 exceeds .*which 400 unanimous votes show"
    ):
        subject.certify_image(small_digits.test.image(0), 0)


def test_a_constant_network_reaches_the_ceiling_and_no_more(small_digits: Splits) -> None:
    class Constant(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.eye(10)[3].expand(len(x), 10)

    subject = Smoothed(MultiHead(nn.Identity(), [Constant()]), small_digits.test.info, **SETTINGS)
    certificate = subject.certify_image(small_digits.test.image(0), 0).certificate
    assert certificate.prediction == 3
    assert certificate.radius <= subject.certifier.max_radius
    assert certificate.radius == pytest.approx(0.5 * norm.ppf(0.001 ** (1 / 400)), rel=1e-9)


def test_times_of_images_add_up_to_that_of_the_run(tiny_network: Network, small_digits: Splits) -> None:
    smoothed = Smoothed(tiny_network(), small_digits.train.info, seed=0, sigma=0.5, n0=10, n=50, block=10)
    started = time.monotonic()
    found = list(smoothed.certify(select(small_digits.test, SubsetConfig(first=6))))
    assert 0 < sum(each.seconds for each in found) <= time.monotonic() - started
    assert all(each.samples == 60 and each.seconds > 0 for each in found)


def test_few_samples_are_noted(tiny_network: Network, small_digits: Splits) -> None:
    few = Smoothed(tiny_network(), small_digits.test.info, sigma=0.5, n=10, n0=10)
    assert any("n = 10 certifies a radius of at most 0.0" in note for note in few.notes)
    assert not Smoothed(tiny_network(), small_digits.test.info, sigma=0.5, n=100).notes


def test_repr_is_a_sentence(tiny_network: Network, small_digits: Splits) -> None:
    text = repr(Smoothed(tiny_network(heads=2), small_digits.test.info, **SETTINGS))
    assert text.startswith(
        "Smoothed(2 head(s), 10 classes, images 1x8x8, sigma 0.5, budget fixed with n = 400"
    )


def test_no_bar_without_a_terminal(
    tiny_network: Network, small_digits: Splits, capsys: pytest.CaptureFixture[str]
) -> None:
    data = select(small_digits.test, SubsetConfig(first=2))
    Smoothed(tiny_network(), data.info, **SETTINGS).certify(data)
    assert capsys.readouterr() == ("", "")


def test_predict_with_ten_samples_says_how_many_are_needed(
    tiny_network: Network, small_digits: Splits
) -> None:
    subject = Smoothed(tiny_network(), small_digits.test.info, sigma=0.5, n=10, n0=10)
    with pytest.raises(ConfigError, match=r"n = 10 is too small for alpha = 0\.001: .*use n >= 11"):
        subject.predict(small_digits.test.image(0))
