"""Hostile pickles are refused and execute nothing: the witness file never appears."""

from __future__ import annotations

import contextlib
import copyreg
import io
import os
import pickle
import struct
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data.builders import cifar10, npz

from smoothheads.data.unpickle import unpickle
from smoothheads.errors import DataError

DTYPE = b"cnumpy\ndtype\n"
ARRAY = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85C\x01b\x87R"


class Runs:
    """Runs a function with arguments when it is unpickled without care."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.function, self.arguments = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return self.function, self.arguments


def touches(witness: Path) -> Runs:
    return Runs(os.system, f"touch {witness}")


def object_array(item: object) -> Any:
    array = np.empty(1, object)
    array[0] = item
    return array


PLACES: dict[str, Callable[[Runs], Any]] = {
    "alone": lambda evil: evil,
    "value": lambda evil: {"data": evil, "labels": [1]},
    "key": lambda evil: {Hashable(evil): 1},
    "nested": lambda evil: {"labels": [1, [2, {"deep": (3, evil)}]]},
    "object array": lambda evil: {"data": object_array(evil)},
    "array in array": lambda evil: {"data": object_array(object_array(evil))},
}


class Hashable(Runs):
    def __init__(self, evil: Runs) -> None:
        super().__init__(evil.function, *evil.arguments)


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    return tmp_path / "witness"


def refused(data: bytes, message: str | None = None) -> None:
    with pytest.raises(DataError, match=message):
        unpickle(data, "here")


def test_the_payload_is_real(witness: Path) -> None:
    pickle.loads(pickle.dumps({"data": touches(witness)}))
    assert witness.exists()


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize("place", list(PLACES))
def test_a_call_is_refused_wherever_it_hides(witness: Path, place: str, protocol: int) -> None:
    refused(
        pickle.dumps(PLACES[place](touches(witness)), protocol), "refused|other than integers|not of integers"
    )
    assert not witness.exists()


@pytest.mark.parametrize(
    "function",
    [
        eval,
        exec,
        compile,
        getattr,
        __import__,
        open,
        os.popen,
        os.system,
        np.load,
        pickle.loads,
        bytearray,
        type,
    ],
)
def test_no_function_is_reachable(function: Callable[..., Any], witness: Path) -> None:
    code = f"open({str(witness)!r}, 'w')"
    refused(pickle.dumps({"data": Runs(function, code)}, 2), "asks for")
    assert not witness.exists()


@pytest.mark.parametrize("opcode", ["inst", "obj", "newobj", "stack_global", "global_dotted"])
def test_every_way_to_name_a_function_is_closed(witness: Path, opcode: str) -> None:
    text = f"touch {witness}".encode()
    string = b"X" + struct.pack("<I", len(text)) + text
    programs = {
        "inst": b"(" + string + b"iposix\nsystem\n.",
        "obj": b"(cposix\nsystem\n" + string + b"o.",
        "newobj": b"\x80\x02cposix\nsystem\n" + string + b"\x85\x81.",
        "stack_global": b"\x80\x04\x8c\x05posix\x8c\x06system\x93" + string + b"\x85R.",
        "global_dotted": b"\x80\x04\x8c\x05numpy\x8c\x13dtype.__reduce_ex__\x93" + string + b"\x85R.",
    }
    refused(programs[opcode], "asks for")
    assert not witness.exists()


def test_registered_extensions_are_not_a_way_in(witness: Path) -> None:
    copyreg.add_extension("posix", "system", 240)
    try:
        text = f"touch {witness}".encode()
        refused(b"\x80\x02\x82\xf0X" + struct.pack("<I", len(text)) + text + b"\x85R.", "asks for")
    finally:
        copyreg.remove_extension("posix", "system", 240)
    assert not witness.exists()


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (b"Pname\n.", "persistent"),
        (DTYPE + b"}b.", "a state for a function"),
        (b"cnumpy\nndarray\n}b.", "a state for a function"),
        (b"cnumpy\nndarray\n)R.", "not callable"),
        (b"cnumpy\nndarray\n.", "instead of a dict"),
        (DTYPE + b".", "instead of a dict"),
        (DTYPE + b"X\x02\x00\x00\x00O8\x85R.", "not of integers"),
        (DTYPE + b"X\x02\x00\x00\x00V8\x85R.", "not of integers"),
        (DTYPE + b"X\x05\x00\x00\x00O,O,O\x85R.", "not of integers"),
        (DTYPE + b"]X\x01\x00\x00\x00aa\x85R.", "where text belongs"),
        (DTYPE + b"X\x02\x00\x00\x00u1\x85R(K\x03X\x01\x00\x00\x00xtb.", "byte order"),
        (ARRAY + b"}b.", "unpack"),
        (b"c_codecs\nencode\nX\x01\x00\x00\x00aX\x03\x00\x00\x00rot\x86R.", "encoded as"),
    ],
)
def test_the_stand_ins_do_nothing_else(program: bytes, message: str) -> None:
    refused(b"\x80\x02" + program, message)


@pytest.mark.parametrize(
    ("shape", "raw"),
    [
        (b"K\x05\x85", b"1234"),
        (b"J\xff\xff\xff\xff\x85", b""),
        (b"J\xff\xff\xff\x7f\x85", b"12"),
        (b"G" + bytes(8) + b"\x85", b""),
    ],
)
def test_an_array_never_reaches_beyond_its_bytes(shape: bytes, raw: bytes) -> None:
    dtype = DTYPE + b"X\x02\x00\x00\x00u1\x85R(K\x03X\x01\x00\x00\x00|tb"
    data = b"C" + bytes([len(raw)]) + raw
    refused(b"\x80\x03" + ARRAY + b"(K\x01" + shape + dtype + b"\x89" + data + b"tb.", "shape")


def test_a_list_that_holds_itself_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    refused(pickle.dumps({"labels": endless}, 2), "nested list")


@pytest.mark.parametrize("value", [1.5, None, {1, 2}, np.arange(3.0), np.array(["a"]), np.float64(1)])
def test_nothing_but_arrays_dicts_strings_and_integers(value: Any) -> None:
    refused(pickle.dumps({"data": value}, 2))


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_random_bytes_are_refused_or_harmless(data: bytes) -> None:
    with contextlib.suppress(DataError):
        assert isinstance(unpickle(data, "here"), dict)


def hostile_batch(witness: Path) -> bytes:
    return pickle.dumps({"data": touches(witness), "labels": [0]}, 2)


def test_a_hostile_batch_in_a_folder(tmp_path: Path, witness: Path) -> None:
    (tmp_path / "test_batch").write_bytes(hostile_batch(witness))
    with pytest.raises(DataError, match=r"asks for posix\.system, which was refused"):
        cifar10(tmp_path, "test")
    assert not witness.exists()


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
    with pytest.raises(DataError, match="refused"):
        cifar10(root, "test")
    assert not witness.exists()
    assert [path.name for path in root.iterdir()] == ["cifar-10-python.tar.gz"]


def test_links_in_an_archive_lead_nowhere(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(3073))
    with tarfile.open(tmp_path / "cifar-10-binary.tar.gz", "w:gz") as archive:
        link = tarfile.TarInfo("cifar-10-batches-bin/test_batch.bin")
        link.type, link.linkname = tarfile.SYMTYPE, str(secret)
        archive.addfile(link)
    with pytest.raises(DataError, match=r"the file test_batch\.bin"):
        cifar10(tmp_path, "test")


def test_a_hostile_npz(tmp_path: Path, witness: Path) -> None:
    path = tmp_path / "own.npz"
    np.savez(path, test_images=object_array(touches(witness)), test_labels=np.array([0]))
    with pytest.raises(DataError, match="plain arrays"):
        npz(path, "test")
    assert not witness.exists()
