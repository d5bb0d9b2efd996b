"""A denoiser for images in [0, 1] at any noise level, to be put in front of a classifier.

The network follows FFDNet (Zhang, Zuo and Zhang 2018): it works on images folded to half their side, and a
map of the noise level is one more input channel. Residual blocks take the place of batch normalisation.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from smoothheads.errors import ConfigError

CHANNELS = 64
BLOCKS = 5  # of two convolutions each: twelve convolutions in all
MAX_SIGMA = 1.0


class ResidualBlock(nn.Module):
    """Adds two 3x3 convolutions to its input."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1)
        # The block starts as the identity, so that training is stable without batch normalisation.
        nn.init.zeros_(self.conv2.weight)

    def forward(self, features: Tensor) -> Tensor:
        out: Tensor = features + self.conv2(torch.relu(self.conv1(features)))
        return out


class Denoiser(nn.Module):
    """Estimates the clean image from an image with Gaussian noise of a known standard deviation.

    Args:
        image_channels: channels of the images, 3 for colour.
        channels: channels of the hidden layers.
        blocks: number of residual blocks.
    """

    def __init__(self, image_channels: int = 3, channels: int = CHANNELS, blocks: int = BLOCKS) -> None:
        super().__init__()
        self.first = nn.Conv2d(4 * image_channels + 1, channels, 3, padding=1)
        self.blocks = nn.Sequential(*(ResidualBlock(channels) for _ in range(blocks)))
        self.last = nn.Conv2d(channels, 4 * image_channels, 3, padding=1)

    def forward(self, images: Tensor, sigma: float | Tensor = 0.25) -> Tensor:
        """Returns the denoised images [N, C, H, W], which lie in [0, 1] except in training mode.

        Args:
            images: images in [0, 1] plus noise, not clipped.
            sigma: standard deviation of the noise, one number or one for each image [N], from 0 to 1.
        """
        height, width = images.shape[-2:]
        level = torch.as_tensor(sigma, dtype=images.dtype, device=images.device).expand(len(images))
        # Sides must be even to be folded: repeat the last row and column if they are not.
        padded = nn.functional.pad(images, (0, width % 2, 0, height % 2), mode="replicate")
        folded = nn.functional.pixel_unshuffle(padded, 2)
        level_map = level.view(-1, 1, 1, 1).expand(-1, 1, *folded.shape[-2:])
        features = self.blocks(self.first(torch.cat([folded, level_map], dim=1)))
        noise = nn.functional.pixel_shuffle(self.last(torch.relu(features)), 2)[..., :height, :width]
        # The network predicts the noise, which is taken away.
        clean = images - noise
        return clean if self.training else clean.clamp(0, 1)

    def split(self, cut: str) -> tuple[nn.Module, nn.Module]:
        """Returns an empty trunk and the denoiser: a denoiser is always one whole network."""
        if cut != "input":
            raise ConfigError(f"A denoiser has no cut {cut!r}: set model.cut to 'input'.")
        return nn.Identity(), self
