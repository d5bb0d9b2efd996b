"""A data set from outside: one class, known by its name as soon as it is registered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from smoothheads.config import from_dict, to_dict
from smoothheads.data import DATASETS, ArrayDataset, DataConfig, from_arrays, load, named
from smoothheads.data.base import Split
from smoothheads.errors import ConfigError
from smoothheads.training import RunConfig


@pytest.fixture
def stripes() -> Iterator[type[DataConfig]]:
    @DATASETS.register
    @dataclass(frozen=True, kw_only=True)
    class Stripes(DataConfig):
        """Horizontal or vertical stripes."""

        name: ClassVar[str] = "stripes"
        side: int = 8

        def read(self, split: Split) -> ArrayDataset:
            stripes = np.arange(self.side) % 2 * 255 + np.zeros((self.side, 1))
            count = 20 if split == "train" else 4
            images = np.stack([stripes if i % 2 else stripes.T for i in range(count)])
            return from_arrays(images, np.arange(count) % 2, classes=["flat", "upright"], name="stripes")

    yield Stripes
    del DATASETS._components["stripes"]


def test_it_is_components_cut_and_stored_like_ours(stripes: type[DataConfig]) -> None:
    config = RunConfig(data=named("stripes", side=6, downscale=2))
    assert from_dict(RunConfig, to_dict(config)) == config
    splits = load(config.data)
    assert splits.test.info.shape == (1, 3, 3)
    assert (len(splits.train), len(splits.validation)) == (18, 2)
    assert named("digits", validation=0.3).another("stripes").validation == 0.3


def test_an_unknown_set_gets_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Unknown data set 'cifar-10': did you mean 'cifar10'"):
        named("cifar-10")
