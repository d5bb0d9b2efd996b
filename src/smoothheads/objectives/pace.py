"""The threshold lambda between easy and hard samples over the epochs."""

from __future__ import annotations

import math

from smoothheads.config import TeachingConfig


def scheduled_lambda(config: TeachingConfig, *, epoch: int, epochs: int, classes: int) -> float:
    """Lambda of `epoch` (counted from 1), falling from ln(classes) to lambda_last: the bar for easy rises.

    The log10 shape is -log10(a t + b), written as an interpolation so that its ends are exact.
    """
    last = config.lambda_last
    if config.pace == "fixed" or epochs == 1 or epoch == epochs:
        return last
    first = math.log(classes) if config.lambda_first is None else config.lambda_first
    if epoch == 1:
        return first
    u = (epoch - 1) / (epochs - 1)
    if config.pace == "linear":
        return (1 - u) * first + u * last
    return -math.log10((1 - u) * 10**-first + u * 10**-last)
