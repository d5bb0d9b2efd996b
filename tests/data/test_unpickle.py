"""What the restricted unpickler reads; what it refuses is in tests/security/test_pickle.py."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from smoothheads.data.unpickle import unpickle
from smoothheads.errors import DataError

from .builders import pictures, python2_pickle

BATCH: dict[str, Any] = {"data": pictures(3, (12,)), "labels": [3, 1, 2], "batch_label": "one of one"}


def test_the_old_form_is_what_numpy_reads_too() -> None:
    """The writer of the tests is honest: numpy's own unpickling gives the same."""
    data = python2_pickle(BATCH)
    theirs, ours = pickle.loads(data, encoding="bytes"), unpickle(data, "here")
    assert np.array_equal(theirs[b"data"], ours["data"])
    assert theirs[b"labels"] == ours["labels"] == [3, 1, 2]
    assert ours["batch_label"] == b"one of one"
    assert np.array_equal(ours["data"], BATCH["data"])


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("dtype", ["u1", "<i8", ">i4", "i1"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_of_every_protocol(protocol: int, dtype: str, order: Any) -> None:
    array = np.asarray(np.arange(12).reshape(3, 4), dtype=dtype, order=order)
    read = unpickle(pickle.dumps({"data": array}, protocol), "here")["data"]
    assert np.array_equal(read, array)
    assert read.dtype.itemsize == array.dtype.itemsize


def test_every_truncation_is_refused() -> None:
    data = python2_pickle(BATCH)
    for length in range(len(data)):
        with pytest.raises(DataError, match="pickle of arrays"):
            unpickle(data[:length], "here")


@pytest.mark.parametrize("value", [[1, 2], "text", 3, np.arange(3)])
def test_only_dicts_are_batches(value: Any) -> None:
    with pytest.raises(DataError, match="instead of a dict"):
        unpickle(pickle.dumps(value, 2), "here")
