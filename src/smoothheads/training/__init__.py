"""Training: one loop for every method and every number of heads.

This package holds the settings and does not import torch: the loop is in `smoothheads.training.loop`, the
call for Python users in `smoothheads.training.fit`.
"""

from smoothheads.training.config import RunConfig as RunConfig
from smoothheads.training.config import TrainConfig as TrainConfig
