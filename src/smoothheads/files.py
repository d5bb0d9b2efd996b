"""Files that are either whole or not there, and outputs that never take the place of what others wrote.

Every command writes through this module: `claim` is the one rule for folders, `write_own` for single files,
`storage` turns what the disk refuses into one message, `exclusive` is the one lock.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import Any

from smoothheads.errors import HeldError, SmoothheadsError, StorageError

LOCK = ".lock"
STAMP = "written by smoothheads"
"""In pages, plots and tables, so that we know our own."""
_PARTIAL = re.compile(r"\.(.+)\.(\d+)\.partial")
_FULL = ("no space left", "storagefull", "os error 28", "quota exceeded")


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Turns refusals of the disk (full, no permission, ...) into one clear message, whoever raises them:
    libraries that write by themselves have errors of their own for a full disk."""
    try:
        yield
    except SmoothheadsError:
        raise
    except Exception as error:
        text = str(error).lower()
        known = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        full = known or any(words in text for words in _FULL)
        if not full and not isinstance(error, OSError) and "ioerror" not in text:
            raise
        reason = getattr(error, "strerror", None) or ("No space left on device" if full else str(error))
        remedy = "free some space and run again" if full else "check the path and its permissions"
        raise StorageError(f"to write {path}", reason, remedy) from error


def claim(folder: Path, ours: Callable[[Path], bool] = lambda _: False, beside: Collection[str] = ()) -> None:
    """The rule for every output folder: it is new, or empty, or `ours` recognises what the same command wrote
    into it before. Raises StorageError otherwise; nothing is touched.

    Our own lock, what a killed process of ours left, and names in `beside` are not counted.
    """
    with storage(folder):
        if not folder.exists():
            return
        if not folder.is_dir():
            raise StorageError(f"a folder at {folder}", "a file", "choose another place")
        names = sorted(entry.name for entry in folder.iterdir())
    foreign = [name for name in names if name not in (LOCK, *beside) and not _PARTIAL.fullmatch(name)]
    if foreign and not ours(folder):
        raise StorageError(
            f"a new or empty folder at {folder}",
            f"one with {', '.join(foreign[:3])}{', ...' if len(foreign) > 3 else ''}",
            "choose another place; what lies there is kept",
        )


def stamped(path: Path, stamp: str = STAMP) -> bool:
    """Whether the file is there and says that it is of this kind."""
    try:
        return stamp.encode() in path.read_bytes()
    except OSError:
        return False


def claim_file(path: Path, stamp: str = STAMP) -> None:
    """The rule for every single file: it is new, or we wrote it before, as its `stamp` shows. Raises
    StorageError otherwise; worth asking before a long run."""
    if path.is_dir() or (path.exists() and not stamped(path, stamp)):
        what = "a folder" if path.is_dir() else "a file that this command did not write"
        raise StorageError(f"a new file at {path}", what, "choose another name; what lies there is kept")


def write_own(path: Path, data: bytes | str, stamp: str = STAMP) -> None:
    """`write_atomic` where `claim_file` allows it."""
    content = data.encode() if isinstance(data, str) else data
    assert stamp.encode() in content, f"{path} without its stamp {stamp!r}"
    claim_file(path, stamp)
    write_atomic(path, content)


def write_atomic(path: Path, data: bytes | str) -> None:
    """After this the file holds `data`; a crash at any moment leaves the old content or the new."""
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial(path)
        try:
            with partial.open("wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync_folder(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def append(file: FileIO, data: bytes, path: Path) -> None:
    """After this the data is on the disk, at the end of the file; if it raises, the file is as it was."""
    size = os.fstat(file.fileno()).st_size
    try:
        with storage(path):
            left = data
            while left:  # the system may take a part and refuse the rest
                left = left[file.write(left) or 0 :]
            os.fsync(file.fileno())
    except StorageError:
        file.truncate(size)
        raise


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """A temporary folder that becomes `path`, which must be new or empty, when the block ends without error.

    An empty folder that is there already, perhaps a mount or the current one, is filled, file by file.
    """
    claim(path)
    with storage(path):
        path = Path(os.path.abspath(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent, path.name)
        partial = _partial(path)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        try:
            yield partial
            for inner in partial.rglob("*"):
                if inner.is_dir():
                    sync_folder(inner)
                else:
                    with inner.open("r+b") as file:
                        os.fsync(file.fileno())
            if path.exists():
                claim(path)
                for inner in sorted(partial.iterdir()):
                    os.replace(inner, path / inner.name)
            else:
                os.replace(partial, path)
            sync_folder(path.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def exclusive(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """The folder belongs to this process alone; the system frees it if we are killed. What a killed process
    left half written there is cleared away.

    A second process waits if told so, and else gets a HeldError that names the holder.
    """
    from filelock import FileLock, Timeout  # not needed to read

    path = folder / LOCK
    with storage(path):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(path)
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            held_by = holder(folder) or "another process"
            raise HeldError(
                f"{folder} for this process alone",
                f"a folder held by {held_by}",
                "wait or use another folder",
            ) from None
    try:
        with storage(path):
            _note(path, f"process {os.getpid()} on {socket.gethostname()}")
            _sweep(folder)
        yield
    finally:
        _note(path, "")
        lock.release()


def holder(folder: Path) -> str:
    """Which process on which machine has the folder for itself, as `exclusive` noted; "" if none has."""
    try:
        return (folder / LOCK).read_text()
    except OSError:
        return ""


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_folder(folder: Path) -> None:
    """Makes a rename in the folder survive a power cut, where the system can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.partial")


def is_partial(path: Path) -> bool:
    """Whether it is, or lies in, something that is still being written."""
    return any(_PARTIAL.fullmatch(part) for part in path.parts)


def _sweep(folder: Path, name: str | None = None) -> None:
    """Removes what processes that have ended left half written, of the output called `name` or of any."""
    for entry in folder.glob(".*.partial"):
        match = _PARTIAL.fullmatch(entry.name)
        if match and name in (None, match[1]) and not running(int(match[2])):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def running(process: int) -> bool:
    """Whether this machine has a process of that number; yes where it does not tell."""
    if os.name == "nt":  # where to ask is to stop it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _note(path: Path, text: str) -> None:
    """Who holds the lock, for others to read; on Windows a locked file cannot be written."""
    with suppress(OSError):
        path.write_text(text)
