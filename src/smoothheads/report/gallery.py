"""Pictures of what a certificate says: the image, what the network sees, and a change that cannot matter."""

from __future__ import annotations

from io import BytesIO

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from smoothheads.types import Grid, Pixels

SIDE = 96
GAP = 6


def triptych(image: Pixels, grid: Grid, *, sigma: float, radius: float, seed: int) -> bytes:
    """PNG of three panels: the clean image, one noisy sample, and a random change of exactly that norm."""
    generator = np.random.default_rng(seed)
    clean = image / grid.max_value
    noisy = clean + sigma * generator.standard_normal(image.shape)
    change = generator.standard_normal(image.shape)
    changed = clean + radius * change / np.linalg.norm(change)
    panels = [_panel(pixels) for pixels in (clean, noisy, changed)]
    gap = np.full((SIDE, GAP, 3), 255, dtype=np.uint8)
    out = BytesIO()
    Image.fromarray(np.concatenate([panels[0], gap, panels[1], gap, panels[2]], axis=1)).save(
        out, format="png"
    )
    return out.getvalue()


def _panel(pixels: NDArray[np.float64]) -> NDArray[np.uint8]:
    """[SIDE, SIDE, 3], clipped for the eye only."""
    shown = (np.clip(pixels, 0, 1) * 255).round().astype(np.uint8).transpose(1, 2, 0)
    picture = Image.fromarray(np.repeat(shown, 3 // shown.shape[2], axis=2))
    return np.asarray(picture.resize((SIDE, SIDE), Image.Resampling.NEAREST))
