from __future__ import annotations

import pytest
import torch

from smoothheads.errors import ConfigError
from smoothheads.models.lenet import lenet


def test_the_linear_layers_of_mnist() -> None:
    shapes = {name: tuple(p.shape) for name, p in lenet((1, 28, 28), 10).named_parameters()}
    assert shapes["fc1.weight"] == (500, 800)
    assert shapes["fc2.weight"] == (10, 500)


@pytest.mark.parametrize("shape", [(1, 16, 16), (3, 32, 32), (1, 17, 29)])
def test_other_image_sizes(shape: tuple[int, int, int]) -> None:
    assert lenet(shape, 3)(torch.rand(2, *shape)).shape == (2, 3)


def test_images_too_small_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"16x16.*got 8x8.*resnet8"):
        lenet((1, 8, 8), 10)
