from __future__ import annotations

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.special import softmax
from torch import Tensor
from torch.nn import functional as F

from smoothheads.models.aggregate import aggregate_votes, aggregations, ensemble, fit_weights


def logits_arrays(heads: st.SearchStrategy[int]) -> st.SearchStrategy[NDArray[np.float32]]:
    values = st.floats(-100, 100, width=32)
    shapes = st.tuples(heads, st.integers(1, 4), st.integers(2, 5))
    return shapes.flatmap(lambda shape: arrays.arrays(np.float32, shape, elements=values))


def test_the_rules_and_their_order() -> None:
    assert aggregations(1) == ("ensemble",)
    assert aggregations(1, weighted=True) == ("ensemble",)
    assert aggregations(2) == ("ensemble", "head-1", "head-2", "softmax", "vote", "margin")
    assert aggregations(4, weighted=True) == (
        *("ensemble", "head-1", "head-2", "head-3", "head-4"),
        *("prefix-2", "prefix-3", "consensus-2", "consensus-3"),
        *("softmax", "vote", "margin", "weighted"),
    )


def test_by_hand() -> None:
    """Four heads, three images: heads 1-2 agree on 0 and are outvoted; only head 1 says 1; all agree on 2."""
    logits_LNC = torch.tensor(
        [
            [[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
            [[1.0, 0.5, 0.0], [4.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
            [[0.0, 9.0, 0.0], [0.0, 0.0, 5.0], [0.0, 0.0, 1.0]],
            [[0.0, 0.0, 9.6], [0.0, 0.0, 5.0], [0.0, 0.0, 1.0]],
        ]
    )
    weights_L = torch.tensor([3.0, 3.0, 1.0, -1.0], dtype=torch.float64)
    got = dict(
        zip(aggregations(4, weighted=True), aggregate_votes(logits_LNC, weights_L).tolist(), strict=True)
    )
    assert got == {
        "ensemble": [2, 2, 2],
        "head-1": [0, 1, 2],
        "head-2": [0, 0, 2],
        "head-3": [1, 2, 2],
        "head-4": [2, 2, 2],
        "prefix-2": [0, 0, 2],
        "prefix-3": [1, 2, 2],
        "consensus-2": [0, 2, 2],
        "consensus-3": [2, 2, 2],
        "softmax": [1, 2, 2],
        "vote": [0, 2, 2],
        "margin": [2, 2, 2],
        "weighted": [1, 0, 2],
    }


def test_the_ensemble_is_the_mean() -> None:
    logits_LNC = torch.tensor([[[1.0, 2.0]], [[4.0, 0.0]]])
    assert ensemble(logits_LNC).tolist() == [[2.5, 1.0]]


@pytest.mark.parametrize("heads", [1, 2, 5])
def test_of_equal_logits_the_smallest_class_wins(heads: int) -> None:
    weights_L = torch.ones(heads, dtype=torch.float64)
    classes_RN = aggregate_votes(torch.tensor([[[0.0, 1.0, 1.0], [3.0, 3.0, 3.0]]] * heads), weights_L)
    assert classes_RN.dtype == np.int64
    assert classes_RN.tolist() == [[1, 0]] * len(aggregations(heads, weighted=True))


def test_a_tied_vote_goes_to_the_smallest_class_and_a_tied_margin_to_the_first_head() -> None:
    logits_LNC = torch.tensor([[[0.0, 5.0]], [[5.0, 0.0]], [[0.0, 5.0]], [[5.0, 0.0]]])
    got = dict(zip(aggregations(4), aggregate_votes(logits_LNC)[:, 0].tolist(), strict=True))
    assert (got["vote"], got["margin"]) == (0, 1)
    turned = dict(zip(aggregations(4), aggregate_votes(logits_LNC.flip(0))[:, 0].tolist(), strict=True))
    assert (turned["vote"], turned["margin"]) == (0, 0)


def test_weights_may_turn_a_head_around() -> None:
    logits_LNC = torch.tensor([[[1.0, 0.0]], [[0.0, 3.0]]])
    for weights, expected in (([1.0, 0.0], 0), ([1.0, 1.0], 1), ([1.0, -1.0], 0), ([-1.0, 0.1], 1)):
        assert aggregate_votes(logits_LNC, torch.tensor(weights, dtype=torch.float64))[-1].tolist() == [
            expected
        ]


def test_one_class_is_always_right() -> None:
    assert (aggregate_votes(torch.randn(3, 2, 1)) == 0).all()


def test_heads_that_cancel_exactly_tie() -> None:
    logits_LNC = torch.tensor([[[0.1, 0.7]], [[0.7, 0.1]]])
    assert aggregate_votes(logits_LNC)[0].tolist() == [0]
    assert aggregate_votes(logits_LNC.flip(0))[0].tolist() == [0]


def test_large_finite_logits_do_not_overflow() -> None:
    large = torch.finfo(torch.float32).max
    logits_LNC = torch.tensor([[[0.9 * large, large]]] * 3)
    assert ensemble(logits_LNC).isfinite().all()
    assert (aggregate_votes(logits_LNC) == 1).all()


def test_half_precision_logits_are_added_exactly() -> None:
    """In bfloat16, 256 + 1 is 256: the third head's doubt would vanish."""
    logits_LNC = torch.tensor([[[256.0, 256.0]], [[0.0, 1.0]], [[0.0, 0.0]]], dtype=torch.bfloat16)
    assert aggregate_votes(logits_LNC.float())[0].tolist() == [1]


def test_a_non_finite_logit_still_shows() -> None:
    logits_LNC = torch.zeros(3, 1, 2)
    logits_LNC[1, 0, 0] = torch.nan
    assert ensemble(logits_LNC).isnan().any()


def test_gradients_reach_every_head() -> None:
    logits_LNC = torch.randn(3, 2, 4, requires_grad=True)
    (gradient_LNC,) = torch.autograd.grad(ensemble(logits_LNC).sum(), logits_LNC)
    torch.testing.assert_close(gradient_LNC, torch.full((3, 2, 4), 1 / 3))


@given(array=logits_arrays(st.integers(1, 6)), data=st.data())
def test_the_ensemble_does_not_depend_on_the_order_of_heads(
    array: NDArray[np.float32], data: st.DataObject
) -> None:
    logits_LNC = torch.from_numpy(array)
    order = data.draw(st.permutations(range(len(array))))
    torch.testing.assert_close(ensemble(logits_LNC[order]), ensemble(logits_LNC), rtol=0, atol=1e-12)


@given(array=logits_arrays(st.integers(2, 6)))
def test_every_rule_against_its_definition(array: NDArray[np.float32]) -> None:
    heads, n, _ = array.shape
    got = dict(zip(aggregations(heads), aggregate_votes(array), strict=True))
    single = array.argmax(-1)
    np.testing.assert_array_equal(got["ensemble"], _prefix(array, heads))
    for k in range(1, heads + 1):
        np.testing.assert_array_equal(got[f"head-{k}"], single[k - 1])
    for k in range(2, heads):
        np.testing.assert_array_equal(got[f"prefix-{k}"], _prefix(array, k))
        for i in range(n):
            agreed = len(set(single[:k, i])) == 1
            assert got[f"consensus-{k}"][i] == (single[0, i] if agreed else got["ensemble"][i])
    p = softmax(array.astype(np.float64), axis=-1)
    top = np.sort(p, axis=-1)
    for i in range(n):
        counts = np.bincount(single[:, i])
        assert got["vote"][i] == counts.argmax()
        chosen = p[:, i].mean(0)
        assert chosen[got["softmax"][i]] == pytest.approx(chosen.max(), rel=1e-12)
        margins = top[:, i, -1] - top[:, i, -2]
        surest = [single[k, i] for k in range(heads) if margins[k] >= margins.max() - 1e-12]
        assert got["margin"][i] in surest


def _prefix(array: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    total = np.zeros(array.shape[1:])
    for head in array[:k]:
        total = total + head
    return np.asarray((total / k).argmax(-1))


def drawn(weights: list[float], n: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits of independent heads, and labels drawn from the softmax of their weighted sum."""
    generator = torch.Generator().manual_seed(seed)
    logits_LNC = 2 * torch.randn(len(weights), n, 5, generator=generator)
    p_NC = torch.einsum("l,lnc->nc", torch.tensor(weights), logits_LNC).softmax(-1)
    return logits_LNC, torch.multinomial(p_NC, 1, generator=generator)[:, 0]


def loss(logits_LNC: Tensor, labels_N: Tensor, weights_L: Tensor) -> float:
    scores_NC = torch.einsum("l,lnc->nc", weights_L, logits_LNC.double())
    return float(F.cross_entropy(scores_NC, labels_N))


def test_fitted_weights_recover_those_that_made_the_labels() -> None:
    truth = [1.0, 0.4, -0.6, 0.0]
    found_L = fit_weights(*drawn(truth, 20_000))
    assert found_L.dtype == torch.float64
    torch.testing.assert_close(found_L, torch.tensor(truth, dtype=torch.float64), rtol=0, atol=0.03)


def test_fitted_weights_are_a_minimum_and_always_the_same() -> None:
    logits_LNC, labels_N = drawn([0.7, -0.2, 0.3], 300)
    found_L = fit_weights(logits_LNC, labels_N, ridge=0)
    best = loss(logits_LNC, labels_N, found_L)
    for direction_L in torch.randn(20, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64):
        assert loss(logits_LNC, labels_N, found_L + 1e-3 * direction_L) > best
    assert torch.equal(fit_weights(logits_LNC, labels_N, ridge=0), found_L)


def test_what_the_data_leave_open_is_the_mean() -> None:
    """Equal heads share equally; separable labels do not send the weights to infinity."""
    logits_1NC, labels_N = drawn([1.0], 200)
    torch.testing.assert_close(*fit_weights(logits_1NC.repeat(2, 1, 1), labels_N))
    easy_LNC = 10.0 * F.one_hot(labels_N, 5).repeat(3, 1, 1)
    found_L = fit_weights(easy_LNC, labels_N)
    torch.testing.assert_close(found_L, torch.full_like(found_L, float(found_L.mean())))
    assert 0.1 < float(found_L.mean()) < 10
    flat_L = fit_weights(torch.zeros(3, 4, 5), torch.zeros(4, dtype=torch.long))
    torch.testing.assert_close(flat_L, torch.full_like(flat_L, 1 / 3))


def test_a_useless_head_gets_no_say_and_a_useful_one_helps() -> None:
    logits_LNC, labels_N = drawn([1.0, 0.0], 2000)
    weights_L = fit_weights(logits_LNC, labels_N)
    named = zip(
        aggregations(2, weighted=True), torch.from_numpy(aggregate_votes(logits_LNC, weights_L)), strict=True
    )
    right = {aggregation: float((classes_N == labels_N).float().mean()) for aggregation, classes_N in named}
    assert abs(weights_L[1]) < 0.1 * weights_L[0]
    assert right["weighted"] > right["ensemble"] + 0.05
