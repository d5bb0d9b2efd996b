"""The sums over images must agree with the measures on all logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from smoothheads.results.diversity import BIN, Margins, Spread

LABELS = [0, 3, 1]


@pytest.fixture(name="logits_LMNC")
def three_heads() -> Tensor:
    """Three heads that share half of their movement, 70 samples of 3 images, 4 classes."""
    generator = torch.Generator().manual_seed(1)
    shared, own = (torch.randn(n, 70, 3, 4, generator=generator, dtype=torch.float64) for n in (1, 3))
    logits = shared + own + 0.7 * torch.nn.functional.one_hot(torch.tensor(LABELS), 4)
    return logits.float()


def spread_of(logits_LMNC: Tensor) -> Spread:
    spread = Spread(len(logits_LMNC))
    for image, label in enumerate(LABELS):
        spread.add_image(logits_LMNC[:, :, image].numpy(), label)
    return spread


def test_images_add_up_to_the_measures_on_all_logits(logits_LMNC: Tensor) -> None:
    spread, labels = spread_of(logits_LMNC), torch.tensor(LABELS)
    answers = logits_LMNC.argmax(-1)
    differing = [(answers[i] != answers[j]).double().mean() for i, j in ((0, 1), (0, 2), (1, 2))]
    assert spread.disagreement == pytest.approx(np.mean(differing))
    wrong_LK = (logits_LMNC.argmax(-1) != labels).double().flatten(1)
    pairs = np.corrcoef(wrong_LK.numpy())[np.triu_indices(3, 1)]
    assert spread.error_correlation == pytest.approx(pairs.mean())
    exact = logits_LMNC.double()
    ratio = exact.mean(0).var(0).mean() / exact.var(1).mean()
    assert spread.variance_ratio == pytest.approx(float(ratio))
    right = (logits_LMNC.argmax(-1) == labels).double().mean((1, 2)).tolist()
    assert spread.to_dict()["head_accuracy"] == pytest.approx(right)
    ensemble = (logits_LMNC.double().mean(0).argmax(-1) == labels).double().mean()
    assert spread.to_dict()["accuracy"] == pytest.approx(float(ensemble))
    assert (spread.images, spread.samples) == (3, 210)


def test_a_single_head_has_nothing_to_compare(logits_LMNC: Tensor) -> None:
    spread = spread_of(logits_LMNC[:1])
    assert (spread.disagreement, spread.error_correlation, spread.variance_ratio) == (None, None, None)
    assert 0 < spread.to_dict()["accuracy"] < 1


def test_no_correlation_without_errors_and_no_variance_from_one_draw() -> None:
    certain = np.zeros((2, 5, 4))
    certain[..., 0] = 9
    spread = Spread(2)
    spread.add_image(certain, 0)
    assert (spread.disagreement, spread.error_correlation, spread.variance_ratio) == (0, None, None)
    spread = Spread(2)
    spread.add_image(np.random.default_rng(0).normal(size=(2, 1, 4)), 0)
    assert spread.variance_ratio is None


def test_margins_are_counted_for_the_ensemble_and_each_head(logits_LMNC: Tensor) -> None:
    margins = Margins(3)
    for block in logits_LMNC[:, :, 0].tensor_split([30, 60], dim=1):
        margins.add(block.numpy(), LABELS[0])
    heads = logits_LMNC[:, :, 0].double()
    log_p = [logits_MC.log_softmax(-1).numpy() for logits_MC in (heads.mean(0), *heads)]
    expected = [p[:, LABELS[0]] - np.delete(p, LABELS[0], axis=1).max(1) for p in log_p]
    found = margins.to_dict()
    assert found["samples"] == 70
    for name, values in zip(margins.names, expected, strict=True):
        curve = found["curves"][name]
        assert curve["counts"] == np.histogram(values, found["edges"])[0].tolist()
        assert sum(curve["counts"]) == 70
        assert curve["mean"] == pytest.approx(values.mean())
        assert curve["std"] == pytest.approx(values.std(ddof=1))
        assert curve["correct"] == np.mean(values > 0)


def test_wider_bins_keep_every_copy_and_an_edge_at_zero(logits_LMNC: Tensor) -> None:
    margins = Margins(3)
    margins.add(logits_LMNC[:, :, 1].numpy(), LABELS[1])
    for bins in (2, 7, 60):
        edges, counts_RB = margins.histogram(bins)
        assert counts_RB.sum(1).tolist() == [70] * 4
        assert counts_RB.shape[1] == len(edges) - 1 <= bins
        assert np.abs(edges).min() == pytest.approx(0, abs=1e-9)
        below = counts_RB[:, edges[:-1] < -BIN / 2].sum(1)
        wrong = [70 - round(70 * curve["correct"]) for curve in margins.to_dict()["curves"].values()]
        assert below.tolist() == wrong


def test_margins_far_away_widen_the_bins() -> None:
    margins = Margins(1)
    margins.add(np.array([[[1e6, 0.0], [-1e6, 0.0]]]), 0)
    found = margins.to_dict()
    assert len(found["edges"]) <= 1001
    assert found["curves"]["head-1"]["counts"][0] == found["curves"]["head-1"]["counts"][-1] == 1
    assert found["curves"]["head-1"]["mean"] == 0
