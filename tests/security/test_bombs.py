"""Small files that would unpack to very much, and damage that only a checksum shows: refused, and quickly."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image
from tests.data.builders import npz, png

from smoothheads import checkpoint, limits
from smoothheads.checkpoint.legacy import read_legacy
from smoothheads.data import images, load_test, named
from smoothheads.data.images import decode
from smoothheads.errors import CheckpointError, DataError, LedgerError
from smoothheads.files import sha256
from smoothheads.limits import read_unpacked
from smoothheads.results.read import read_log


def test_every_flipped_bit_of_a_gzip_file_is_seen(tmp_path: Path) -> None:
    """Where it loads, it loads the same bytes."""
    content = np.random.default_rng(0).integers(0, 256, 3000, dtype=np.uint8).tobytes()
    packed, path = gzip.compress(content, 1), tmp_path / "x.gz"
    refused = 0
    for position in range(2, len(packed), 23):  # behind the two bytes that say that it is packed
        damaged = bytearray(packed)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(bytes(damaged))
        try:
            assert read_unpacked(path, "idx file") == content
        except DataError:
            refused += 1
    assert refused > len(packed) // 23 - 5


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SMALL", 1 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(gzip.compress(bytes(1 << 22), 1))
    with pytest.raises(DataError, match=r"bomb .*unpacks to more than"):
        read_unpacked(path, "idx file")
    with pytest.raises(LedgerError, match=r"bomb .*unpacks to more than"):
        read_log(path)


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(118)
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


ARRAYS = {
    "a huge shape": npy("{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999, 8, 8)}"),
    "a shape of another size": npy("{'descr': '|u1', 'fortran_order': False, 'shape': (2, 8, 8)}", bytes(64)),
    "a negative shape": npy("{'descr': '|u1', 'fortran_order': False, 'shape': (-1, -64)}", bytes(64)),
    "objects": npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", pickle.dumps([1])),
    "an unfinished header": npy("{'descr': '|u1', 'shape': (2, (8"),
    "another version": b"\x93NUMPY\x09\x00" + bytes(100),
    "no header": b"",
    "elements without bytes": npy("{'descr': '|V0', 'fortran_order': False, 'shape': (99999999999,)}"),
}


@pytest.mark.parametrize("name", list(ARRAYS))
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA])
def test_arrays_that_lie_about_themselves_are_refused(name: str, method: int, tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("test_images.npy", ARRAYS[name])
    with pytest.raises(DataError, match=r"complete \.npz file of plain arrays"):
        npz(path, "test")


@pytest.mark.parametrize(("offset", "value"), [(6, 1), (8, 99)])
def test_encrypted_and_unknown_members_are_refused(offset: int, value: int, tmp_path: Path) -> None:
    """Flags and method stand at 6 and 8 of a local header, two bytes later in the directory."""
    path = tmp_path / "x.npz"
    np.savez(path, test_images=np.zeros((1, 8, 8), np.uint8), test_labels=np.zeros(1, np.int64))
    data = bytearray(path.read_bytes())
    for signature, shift in ((b"PK\x03\x04", 0), (b"PK\x01\x02", 2)):
        data[data.find(signature) + offset + shift] = value
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match=r"complete \.npz file of plain arrays"):
        npz(path, "test")


@pytest.fixture
def small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """1 MiB may always be unpacked, so that the bombs need not be large."""
    monkeypatch.setattr(limits, "SMALL", 1 << 20)


@pytest.mark.usefixtures("small_budget")
def test_npz_with_many_members(tmp_path: Path) -> None:
    """Each of them alone would be allowed."""
    path = tmp_path / "x.npz"
    zeros: dict[str, Any] = {f"a{i}": np.zeros(600_000, np.uint8) for i in range(8)}
    np.savez_compressed(path, **zeros)
    with pytest.raises(DataError, match=r"unpacks to more than the 1,048,576 bytes"):
        npz(path, "test")


@pytest.mark.usefixtures("small_budget")
def test_weights_in_a_compressed_archive(tmp_path: Path) -> None:
    file, path = io.BytesIO(), tmp_path / "x.pth"
    torch.save({"fc.weight": torch.zeros(1000, 1000)}, file)
    with zipfile.ZipFile(file) as stored, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in stored.namelist():
            packed.writestr(name, stored.read(name))
    with pytest.raises(CheckpointError, match="unpacks to more than"):
        read_legacy(path)


def test_parquet_of_equal_rows(tmp_path: Path) -> None:
    """A column of one value costs a few bytes, however many rows it has."""
    picture = png(np.zeros((3, 32, 32), np.uint8))
    rows = 100_000
    table = pa.table({"image": pa.array([picture] * rows), "label": np.zeros(rows, np.int64)})
    path = tmp_path / "test-0.parquet"
    pq.write_table(table, path)
    assert path.stat().st_size < 5_000
    with pytest.raises(DataError, match=r"unpacks to more than the 67,108,864 bytes"):
        load_test(named("parquet", root=str(path)))


def test_archives_of_others_are_not_opened(tmp_path: Path) -> None:
    """Python's own reader looks for the end of some archives of 279 bytes forever."""
    (tmp_path / "cifar-10-python.tar.gz").write_bytes(gzip.compress(bytes(10_000)))
    with pytest.raises(DataError, match="does not have the published checksum"):
        load_test(named("cifar10", root=str(tmp_path)))


def progressive(scans: int, side: int = 64) -> bytes:
    """A progressive JPEG whose last scan comes again and again."""
    file = io.BytesIO()
    Image.effect_noise((side, side), 90).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last = data.rindex(b"\xff\xda")
    return data[:last] + data[last:-2] * scans + data[-2:]


def test_jpeg_with_a_thousand_scans(tmp_path: Path) -> None:
    assert decode(progressive(5), "here").size == (64, 64)
    for source in (progressive(1000), tmp_path / "a.jpg"):
        (tmp_path / "a.jpg").write_bytes(progressive(1000))
        with pytest.raises(DataError, match=r"here is a JPEG of 1\d+ scans"):
            decode(source, "here")


def test_large_jpeg_with_many_scans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "MAX_SCANNED", 20 * 64 * 64)
    assert decode(progressive(5), "here").size == (64, 64)
    with pytest.raises(DataError, match="scans"):
        decode(progressive(50), "here")


CONFIGS: dict[str, Callable[[dict[str, Any]], None]] = {
    "heads": lambda config: config["run"]["model"].update(heads=20_000),
    "more heads than weights": lambda config: config["run"]["model"].update(heads=9),
    "width": lambda config: config["data"].update(shape=[1, 2_000_000, 2_000_000]),
    "channels": lambda config: config["data"].update(
        shape=[1_000_000, 8, 8], mean=[0.0] * 1_000_000, std=[1.0] * 1_000_000
    ),
    "classes": lambda config: config["data"].update(class_names=["a"] * 900_000),
}


@pytest.mark.parametrize("name", list(CONFIGS))
def test_checkpoint_that_describes_another_size(name: str, network: Path) -> None:
    """The hashes are right; a line of the configuration asks for any memory."""
    config = json.loads((network / "config.json").read_bytes())
    CONFIGS[name](config)
    (network / "config.json").write_text(json.dumps(config))
    manifest = json.loads((network / "manifest.json").read_bytes())
    manifest["sha256"]["config.json"] = sha256(network / "config.json")
    (network / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match=r"config\.json describes a larger network"):
        checkpoint.load(network)
