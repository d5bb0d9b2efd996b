"""Small files that would unpack to very much, and damage that only a checksum shows: refused, and quickly."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from tests.data.builders import npz

from smoothheads import limits
from smoothheads.data.reading import read_file, read_files
from smoothheads.errors import DataError


def tar_of(data: bytes, name: str = "test_batch") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        member = tarfile.TarInfo(f"folder/{name}")
        member.size = len(data)
        tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gz": lambda data: gzip.compress(data, 1),
    "bz2": bz2.compress,
    "xz": lambda data: lzma.compress(data, preset=0),
}


@pytest.mark.parametrize("kind", list(COMPRESSORS))
def test_every_flipped_bit_of_an_archive_is_seen(kind: str, tmp_path: Path) -> None:
    """Where it loads, it loads the same bytes."""
    content = np.random.default_rng(0).integers(0, 256, 3000, dtype=np.uint8).tobytes()
    packed, path = COMPRESSORS[kind](tar_of(content)), tmp_path / "x.tar"
    refused = 0
    for position in range(0, len(packed), 23):
        damaged = bytearray(packed)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(bytes(damaged))
        try:
            assert read_files(path, ["test_batch"]) == [content]
        except DataError:
            refused += 1
    assert refused > len(packed) // 23 - 5


@pytest.mark.parametrize("kind", list(COMPRESSORS))
def test_what_unpacks_to_too_much_is_refused(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "SMALL", 1 << 20)
    path = tmp_path / "bomb"
    path.write_bytes(COMPRESSORS[kind](bytes(1 << 22)))
    with pytest.raises(DataError, match=r"bomb .*unpacks to more than"):
        read_file(path, "idx file")
    path.write_bytes(COMPRESSORS[kind](tar_of(bytes(1 << 22), "other")))
    with pytest.raises(DataError, match="unpacks to more than"):
        read_files(path, ["test_batch"])


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


def test_a_member_that_claims_to_be_endless_is_refused(tmp_path: Path) -> None:
    tar = bytearray(tar_of(b"x", "other"))
    tar[124:136] = b"\x80" + (2**60).to_bytes(11, "big")  # the size, in the form for large files
    tar[148:156] = b" " * 8
    tar[148:156] = f"{sum(tar[:512]):06o}\0 ".encode()
    (tmp_path / "x.tar").write_bytes(bytes(tar))
    with pytest.raises(DataError, match="not a complete tar archive"):
        read_files(tmp_path / "x.tar", ["test_batch"])
