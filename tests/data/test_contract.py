"""What every data set promises, whatever file it came from."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from smoothheads.config import from_dict, to_dict
from smoothheads.data import (
    DATASETS,
    ArrayDataset,
    DataConfig,
    Split,
    Splits,
    SubsetConfig,
    from_arrays,
    load,
    load_test,
    named,
    select,
)
from smoothheads.data.loader import Loader, plain_batches
from smoothheads.errors import ConfigError
from smoothheads.training import RunConfig

from .builders import BUILDERS


@pytest.fixture(params=list(BUILDERS))
def config(request: pytest.FixtureRequest, tmp_path: Path) -> DataConfig:
    return BUILDERS[request.param](tmp_path)


@pytest.fixture
def splits(config: DataConfig) -> Splits:
    return load(config)


def test_facts_fit_the_images(splits: Splits) -> None:
    info = splits.train.info
    assert info == splits.validation.info == splits.test.info
    assert 1 <= info.grid.max_value <= 255
    assert len(info.mean) == len(info.std) == info.shape[0]
    assert info.classes == len(set(info.class_names)) >= 2
    assert all(std > 0 for std in info.std)


def test_images_are_grid_integers_and_always_the_same(splits: Splits) -> None:
    for split in splits:
        image = split.image(0)
        assert image.dtype == np.uint8
        assert image.shape == split.info.shape
        assert image.max() <= split.info.grid.max_value
        kept = image.copy()
        image[:] = 0  # a caller's scribbling must not reach the data set
        assert np.array_equal(split.image(0), kept)


def test_labels_and_indices(splits: Splits) -> None:
    for split in splits:
        assert split.labels.dtype == split.indices.dtype == np.int64
        assert split.labels.shape == split.indices.shape == (len(split),)
        assert 0 <= split.labels.min() <= split.labels.max() < split.info.classes
    assert splits.test.indices.tolist() == list(range(len(splits.test)))


def test_train_and_validation_share_the_training_split_without_overlap(config: DataConfig) -> None:
    whole = load(replace(config, validation=0))
    cut = load(replace(config, validation=0.3))
    assert len(whole.validation) == 0
    assert len(cut.validation) == round(0.3 * len(whole.train))
    together = np.concatenate([cut.train.indices, cut.validation.indices])
    assert sorted(together.tolist()) == whole.train.indices.tolist()
    first = int(cut.validation.indices[0])
    assert np.array_equal(cut.validation.image(0), whole.train.image(first))
    assert cut.validation.labels[0] == whole.train.labels[first]


def test_fingerprints_tell_contents_and_selections_apart(config: DataConfig, splits: Splits) -> None:
    again = load(config)
    assert [s.fingerprint for s in again] == [s.fingerprint for s in splits]
    smaller = load_test(replace(config, downscale=2))
    fewer = select(splits.test, SubsetConfig(every=2))
    fingerprints = {s.fingerprint for s in (*splits, smaller, fewer)}
    assert len(fingerprints) == 5


def test_downscale_averages_on_the_grid(config: DataConfig, splits: Splits) -> None:
    smaller = load_test(replace(config, downscale=2))
    channels, height, width = splits.test.info.shape
    assert smaller.info.shape == (channels, height // 2, width // 2)
    assert smaller.info.name == f"{splits.test.info.name}-downscale2"
    group = splits.test.image(1)[0, :2, 2:4].astype(int)
    assert int(smaller.image(1)[0, 0, 1]) == int(np.floor(group.mean() + 0.5))


def test_batches_hold_every_image_once(splits: Splits) -> None:
    q = splits.train.info.grid.max_value
    seen: list[int] = []
    for batch in Loader(splits.train, 4, seed=3, augment=False).epoch(0):
        assert batch.images.dtype == torch.float32
        position = int(batch.positions[0])
        expected = splits.train.image(position).astype(np.float32) / np.float32(q)
        assert np.array_equal(batch.images[0].numpy(), expected)
        assert batch.labels.tolist() == splits.train.labels[batch.positions.numpy()].tolist()
        seen += batch.positions.tolist()
    assert sorted(seen) == list(range(len(splits.train)))


def test_plain_batches_come_in_order(splits: Splits) -> None:
    batches = list(plain_batches(splits.test, 4))
    assert torch.cat([batch.positions for batch in batches]).tolist() == list(range(len(splits.test)))
    assert torch.cat([batch.labels for batch in batches]).tolist() == splits.test.labels.tolist()
    expected = splits.test.image(len(splits.test) - 1).astype(np.float32) / np.float32(
        splits.test.info.grid.max_value
    )
    assert np.array_equal(batches[-1].images[-1].numpy(), expected)


def test_augmented_batches_stay_on_the_grid(splits: Splits) -> None:
    batch = next(Loader(splits.train, 4, seed=3, augment=True).epoch(0))
    grid = batch.images * splits.train.info.grid.max_value
    assert torch.allclose(grid, grid.round(), atol=1e-4)
    assert 0 <= float(batch.images.min()) <= float(batch.images.max()) <= 1


def test_a_data_set_survives_the_way_to_another_process(splits: Splits) -> None:
    for split in splits:
        copy = pickle.loads(pickle.dumps(split))
        assert copy.fingerprint == split.fingerprint
        assert np.array_equal(copy.image(0), split.image(0))


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
