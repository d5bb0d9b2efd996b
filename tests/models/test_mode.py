from __future__ import annotations

import pytest
from torch import nn

from smoothheads.models.mode import borrowed_mode


@pytest.mark.parametrize("training", [True, False])
def test_every_module_gets_its_own_mode_back(training: bool) -> None:
    model = nn.Sequential(nn.BatchNorm1d(2), nn.Dropout()).train()
    model[0].eval()  # a frozen layer
    with borrowed_mode(model, training=training):
        assert [module.training for module in model.modules()] == [training] * 3
    assert [module.training for module in model.modules()] == [True, False, True]


def test_also_after_an_error() -> None:
    model = nn.Linear(1, 1)
    with pytest.raises(TypeError), borrowed_mode(model, training=False):
        model()
    assert model.training
