"""Files that carry code: none of it is executed; the witness file never appears."""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.data.builders import cifar10, npz

from smoothheads.data import published
from smoothheads.errors import DataError


class Runs:
    """Runs a function with arguments when it is unpickled without care."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.function, self.arguments


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    return tmp_path / "witness"


def hostile_batch(witness: Path) -> bytes:
    return pickle.dumps({b"data": Runs(os.system, f"touch {witness}"), b"labels": [0]}, 2)


def test_cifar_batch_with_code_is_not_opened(tmp_path: Path, witness: Path) -> None:
    (tmp_path / "test_batch").write_bytes(hostile_batch(witness))
    with pytest.raises(DataError, match="does not have the published checksum"):
        cifar10(tmp_path, "test")
    assert not witness.exists()


def test_the_witness_would_have_appeared(
    tmp_path: Path, witness: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = hostile_batch(witness)
    (tmp_path / "test_batch").write_bytes(data)
    monkeypatch.setitem(published.CHECKSUMS, "test_batch", hashlib.md5(data).hexdigest())
    with pytest.raises(AttributeError):
        cifar10(tmp_path, "test")
    assert witness.exists()


def add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    archive.addfile(member, io.BytesIO(data))


def test_a_hostile_archive(tmp_path: Path, witness: Path) -> None:
    root = tmp_path / "data" / "deeper"
    root.mkdir(parents=True)
    with tarfile.open(root / "cifar-10-python.tar.gz", "w:gz") as archive:
        add(archive, "../../witness", b"outside")
        add(archive, str(witness), b"outside")
        add(archive, "cifar-10-batches-py/test_batch", hostile_batch(witness))
    with pytest.raises(DataError, match="published checksum"):
        cifar10(root, "test")
    assert not witness.exists()
    assert [path.name for path in root.iterdir()] == ["cifar-10-python.tar.gz"]


def test_a_hostile_npz(tmp_path: Path, witness: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(
        path, test_images=np.array([Runs(os.system, f"touch {witness}")], object), test_labels=np.array([0])
    )
    with pytest.raises(DataError, match="plain arrays"):
        npz(path, "test")
    assert not witness.exists()
