"""The Adversarial Robustness Toolbox, as its documentation has it used."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import nn

from smoothheads.errors import ConfigError


def smoothing(
    network: nn.Module, shape: tuple[int, int, int], *, classes: int, sigma: float, n0: int, alpha: float
) -> Any:
    """ART's smoothed classifier around a network that gives logits [N, C]."""
    try:
        import statsmodels  # noqa: F401  (ART's bound is its own, and asked for only when it is computed)
        from art.estimators.certification.randomized_smoothing import PyTorchRandomizedSmoothing
    except ImportError as error:
        raise ConfigError(
            "the Adversarial Robustness Toolbox", str(error), "pip install 'smoothheads[bench]'"
        ) from None
    return PyTorchRandomizedSmoothing(
        model=network,
        loss=nn.CrossEntropyLoss(),
        input_shape=shape,
        nb_classes=classes,
        device_type="cpu",
        sample_size=n0,
        scale=sigma,
        alpha=alpha,
    )


def certify(smoothed: Any, image: Any, n: int, batch: int) -> tuple[int, float]:
    """The class and radius of an image of pixels in [0, 1]; n0 + n votes."""
    prediction, radius = smoothed.certify(np.asarray(image, dtype=np.float32)[None], n=n, batch_size=batch)
    return int(prediction[0]), float(radius[0])
