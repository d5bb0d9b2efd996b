"""Converted networks on disk; no OpenVINO is needed to keep them."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from smoothheads.certify.engines import artefact
from smoothheads.errors import CheckpointError

XML, BIN = b"<net>\n</net>\n", b"weights"
WANTED = {"format": artefact.FORMAT, "network": "f" * 64, "weights": "0"}


def build(folder: Path) -> dict[str, object]:
    (folder / artefact.MODEL).write_bytes(XML)
    (folder / artefact.WEIGHTS).write_bytes(BIN)
    return {"versions": {}}


def refuse(_: Path) -> dict[str, object]:
    raise AssertionError("made again")


def version_1(root: Path) -> tuple[Path, str]:
    """As version 1 left it."""
    folder = artefact.obtain(root, "openvino-float32", WANTED, build).folder
    joined = hashlib.sha256(XML + BIN).hexdigest()
    facts = json.loads((folder / artefact.FACTS).read_text())
    facts |= {"format": "smoothheads-openvino/1", "sha256": joined}
    (folder / artefact.FACTS).write_text(json.dumps(facts))
    return folder, joined


def test_it_is_made_once_and_named_by_its_bytes(tmp_path: Path) -> None:
    made = artefact.obtain(tmp_path, "openvino-float32", WANTED, build)
    assert artefact.obtain(tmp_path, "openvino-float32", WANTED, refuse) == made
    assert artefact.find([tmp_path], made.sha256) == made


def test_a_byte_that_moves_from_one_file_to_the_other_changes_the_hash(tmp_path: Path) -> None:
    made = artefact.obtain(tmp_path, "openvino-float32", WANTED, build)
    made.model.write_bytes(XML + BIN[:1])
    (made.folder / artefact.WEIGHTS).write_bytes(BIN[1:])
    with pytest.raises(CheckpointError, match="sha256"):
        artefact.obtain(tmp_path, "openvino-float32", WANTED, refuse)
    with pytest.raises(CheckpointError, match="the converted network with sha256"):
        artefact.find([tmp_path], made.sha256)


def test_what_version_1_made_still_opens_under_the_hash_that_its_ledgers_name(tmp_path: Path) -> None:
    folder, joined = version_1(tmp_path)
    assert artefact.obtain(tmp_path, "openvino-float32", WANTED, refuse).sha256 == joined
    assert artefact.find([tmp_path], joined).folder == folder
    assert artefact.stored(folder, joined).sha256 == joined


def test_nor_does_a_byte_move_unseen_in_what_version_1_made(tmp_path: Path) -> None:
    folder, joined = version_1(tmp_path)
    (folder / artefact.MODEL).write_bytes(XML + BIN[:1])
    (folder / artefact.WEIGHTS).write_bytes(BIN[1:])
    with pytest.raises(CheckpointError):
        artefact.stored(folder, joined)
    with pytest.raises(CheckpointError):
        artefact.find([tmp_path], joined)
