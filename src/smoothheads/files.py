"""Files that are either whole or not there: written under a temporary name, flushed, then renamed."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from smoothheads.errors import StorageError

LOCK = ".lock"


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turns the operating system's refusals (full disk, no permission, ...) into one clear message."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "free some space and run again" if full else "check the path and its permissions"
        raise StorageError(f"to write {path}", error.strerror or str(error), remedy) from error


def write_atomic(path: Path, data: bytes | str) -> None:
    """After this the file holds `data`; a crash at any moment leaves the old content or the new."""
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        try:
            with partial.open("wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync_folder(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that takes the place of `path` when the block ends without an error."""
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            yield partial
            for inner in partial.rglob("*"):
                if inner.is_dir():
                    sync_folder(inner)
                else:
                    _sync_file(inner)
            _swap(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """The folder belongs to this process alone; the system frees it if we are killed.

    A second process gets a StorageError that names the holder.
    """
    path = folder / LOCK
    with storage(path):
        folder.mkdir(parents=True, exist_ok=True)
        file = path.open("a+")
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = path.read_text() or "another process"
            raise StorageError(
                f"{folder} for this process alone", f"a folder held by {holder}", "wait or use another folder"
            ) from None
        with storage(path):
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}")
            file.flush()
        try:
            yield
        finally:
            file.truncate(0)


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Makes a rename in the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _sync_file(path: Path) -> None:
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _swap(new: Path, path: Path) -> None:
    old = path.with_name(f".{path.name}.{os.getpid()}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        os.replace(path, old)
    os.replace(new, path)
    sync_folder(path.parent)
    shutil.rmtree(old, ignore_errors=True)
