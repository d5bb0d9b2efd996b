"""What all tests of data sets need."""

from __future__ import annotations

import pytest

from smoothheads.data import published

from .builders import checksums


@pytest.fixture(autouse=True)
def _checksums_of_our_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can make small batches with the published checksums of CIFAR."""
    monkeypatch.setattr(published, "CHECKSUMS", checksums())
