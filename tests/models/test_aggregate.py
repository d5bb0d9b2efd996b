from __future__ import annotations

import hypothesis.extra.numpy as arrays
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from smoothheads.models.aggregate import decide, ensemble, rules


def logits_arrays(heads: st.SearchStrategy[int]) -> st.SearchStrategy[NDArray[np.float32]]:
    values = st.floats(-100, 100, width=32)
    shapes = st.tuples(heads, st.integers(1, 4), st.integers(2, 5))
    return shapes.flatmap(lambda shape: arrays.arrays(np.float32, shape, elements=values))


def test_the_rules_and_their_order() -> None:
    assert rules(1) == ("ensemble",)
    assert rules(2) == ("ensemble", "head-1", "head-2")
    assert rules(4) == (
        *("ensemble", "head-1", "head-2", "head-3", "head-4"),
        *("prefix-2", "prefix-3", "consensus-2", "consensus-3"),
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
    got = dict(zip(rules(4), decide(logits_LNC).tolist(), strict=True))
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
    }


def test_the_ensemble_is_the_mean() -> None:
    logits_LNC = torch.tensor([[[1.0, 2.0]], [[4.0, 0.0]]])
    assert ensemble(logits_LNC).tolist() == [[2.5, 1.0]]


@pytest.mark.parametrize("heads", [1, 2, 5])
def test_of_equal_logits_the_smallest_class_wins(heads: int) -> None:
    classes_RN = decide(torch.tensor([[[0.0, 1.0, 1.0], [3.0, 3.0, 3.0]]] * heads))
    assert classes_RN.dtype == torch.int64
    assert classes_RN.tolist() == [[1, 0]] * len(rules(heads))


def test_heads_that_cancel_exactly_tie() -> None:
    logits_LNC = torch.tensor([[[0.1, 0.7]], [[0.7, 0.1]]])
    assert decide(logits_LNC)[0].tolist() == [0]
    assert decide(logits_LNC.flip(0))[0].tolist() == [0]


def test_large_finite_logits_do_not_overflow() -> None:
    large = torch.finfo(torch.float32).max
    logits_LNC = torch.tensor([[[0.9 * large, large]]] * 3)
    assert ensemble(logits_LNC).isfinite().all()
    assert (decide(logits_LNC) == 1).all()


def test_half_precision_logits_are_added_exactly() -> None:
    """In bfloat16, 256 + 1 is 256: the third head's doubt would vanish."""
    logits_LNC = torch.tensor([[[256.0, 256.0]], [[0.0, 1.0]], [[0.0, 0.0]]], dtype=torch.bfloat16)
    assert decide(logits_LNC)[0].tolist() == [1]


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
    got = dict(zip(rules(heads), decide(torch.from_numpy(array)).numpy(), strict=True))
    single = array.argmax(-1)
    np.testing.assert_array_equal(got["ensemble"], _prefix(array, heads))
    for k in range(1, heads + 1):
        np.testing.assert_array_equal(got[f"head-{k}"], single[k - 1])
    for k in range(2, heads):
        np.testing.assert_array_equal(got[f"prefix-{k}"], _prefix(array, k))
        for i in range(n):
            agreed = len(set(single[:k, i])) == 1
            assert got[f"consensus-{k}"][i] == (single[0, i] if agreed else got["ensemble"][i])


def _prefix(array: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    total = np.zeros(array.shape[1:])
    for head in array[:k]:
        total = total + head
    return np.asarray((total / k).argmax(-1))
