from __future__ import annotations

import numpy as np
from sklearn.datasets import load_digits

from smoothheads.data.arrays import statistics

from .builders import digits


def test_the_split_never_changes() -> None:
    train, test = digits("train"), digits("test")
    assert (len(train), len(test)) == (1437, 360)
    assert train.fingerprint.startswith("d362cf747566a2fc")
    assert test.fingerprint.startswith("dbd68dce2f11cada")


def test_both_splits_together_are_the_original() -> None:
    original, labels = load_digits(return_X_y=True)
    parts = [digits("train"), digits("test")]
    images = np.concatenate([part.images.reshape(-1, 64) for part in parts])
    together = np.column_stack([images, np.concatenate([part.labels for part in parts])])
    expected = np.column_stack([original, labels])
    assert sorted(map(tuple, together.tolist())) == sorted(map(tuple, expected.tolist()))


def test_the_constants_are_those_of_the_training_split() -> None:
    train = digits("train")
    mean, std = statistics(train.images, train.info.grid.max_value)
    np.testing.assert_allclose(train.info.mean, mean, atol=5e-5)
    np.testing.assert_allclose(train.info.std, std, atol=5e-5)
    assert int(train.images.max()) == train.info.grid.max_value == 16


def test_every_class_is_in_the_test_split() -> None:
    assert np.bincount(digits("test").labels, minlength=10).min() >= 25
