"""Networks: trunk -> L heads -> logits [L, N, C], built by name or made out of any module.

This package does not import torch; the model class is in `smoothheads.models.multihead`.
"""

from smoothheads.models.aggregate import fit_weights as fit_weights
from smoothheads.models.architectures import ARCHITECTURES as ARCHITECTURES
from smoothheads.models.architectures import Architecture as Architecture
from smoothheads.models.architectures import build as build
from smoothheads.models.architectures import list_architectures as list_architectures
from smoothheads.models.config import ModelConfig as ModelConfig
