"""Converted networks on disk; no OpenVINO is needed to keep them."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothheads.certify.engines import conversion
from smoothheads.errors import CheckpointError

MODEL, WEIGHTS = conversion.FILES[conversion.OPENVINO]
XML, BIN = b"<net>\n</net>\n", b"weights"
WANTED = {"format": conversion.OPENVINO, "network": "f" * 64, "weights": "0"}


def build(folder: Path) -> dict[str, object]:
    (folder / MODEL).write_bytes(XML)
    (folder / WEIGHTS).write_bytes(BIN)
    return {"versions": {}}


def refuse(_: Path) -> dict[str, object]:
    raise AssertionError("made again")


def test_it_is_made_once_and_named_by_its_bytes(tmp_path: Path) -> None:
    made = conversion.obtain(tmp_path, "openvino-float32", WANTED, build)
    assert conversion.obtain(tmp_path, "openvino-float32", WANTED, refuse) == made
    assert conversion.find([tmp_path], made.sha256) == made


def test_a_byte_that_moves_from_one_file_to_the_other_changes_the_hash(tmp_path: Path) -> None:
    made = conversion.obtain(tmp_path, "openvino-float32", WANTED, build)
    made.model.write_bytes(XML + BIN[:1])
    (made.folder / WEIGHTS).write_bytes(BIN[1:])
    with pytest.raises(CheckpointError, match="sha256"):
        conversion.obtain(tmp_path, "openvino-float32", WANTED, refuse)
    with pytest.raises(CheckpointError, match="no converted network with sha256"):
        conversion.find([tmp_path], made.sha256)
