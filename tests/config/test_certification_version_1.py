"""Settings that version 1 wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smoothheads.certify.config import CertifyConfig
from smoothheads.config import from_dict
from smoothheads.errors import ConfigError

MANIFEST = Path(__file__).parents[1] / "fixtures" / "v1" / "run" / "ledger-fixed" / "manifest.json"


def test_grouped_heads_are_forgotten_where_they_were_not_used_and_refused_where_they_were() -> None:
    written = json.loads(MANIFEST.read_text())["certify"]
    assert written["grouped"] == "off"
    assert from_dict(CertifyConfig, written).sigma == written["sigma"]
    with pytest.raises(ConfigError, match="heads one by one, got grouped heads"):
        from_dict(CertifyConfig, written | {"grouped": "on"})
