from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor, nn

from smoothheads.data import ArrayDataset, from_arrays
from smoothheads.objectives.soft_labels import class_frequencies

SIGMA, DRAWS = 0.5, 400


class Threshold(nn.Module):
    """Two equal heads: class 1 where the first pixel exceeds a half."""

    def forward(self, images: Tensor) -> Tensor:
        score = images[:, 0, 0, 0] - 0.5
        return torch.stack([torch.zeros_like(score), score], 1).expand(2, -1, -1)


@pytest.fixture
def dataset() -> ArrayDataset:
    images = np.zeros((5, 2, 2, 1), np.uint8)
    images[:, 0, 0, 0] = [0, 64, 128, 192, 255]
    return from_arrays(images, np.array([0, 0, 1, 1, 1]))


def test_frequencies_are_those_of_the_noise(dataset: ArrayDataset) -> None:
    frequencies = class_frequencies(Threshold(), dataset, sigma=SIGMA, draws=DRAWS, seed=0)
    truth = norm.cdf((np.array([0, 64, 128, 192, 255]) / 255 - 0.5) / SIGMA)
    error = np.abs(frequencies[:, 1].numpy() - truth)
    assert (error < 5 * np.sqrt(truth * (1 - truth) / DRAWS)).all()
    torch.testing.assert_close(frequencies.sum(1), torch.ones(5))


def test_the_batch_size_does_not_matter(dataset: ArrayDataset) -> None:
    runs = [
        class_frequencies(Threshold(), dataset, sigma=SIGMA, draws=230, seed=0, batch=batch)
        for batch in (7, 100, 250, 1000)
    ]
    assert all(torch.equal(runs[0], other) for other in runs[1:])
    other_seed = class_frequencies(Threshold(), dataset, sigma=SIGMA, draws=230, seed=1)
    assert not torch.equal(runs[0], other_seed)


def test_the_model_is_left_in_its_mode(dataset: ArrayDataset) -> None:
    model = Threshold().train()
    class_frequencies(model, dataset, sigma=SIGMA, draws=2, seed=0)
    assert model.training
