"""Files that are either complete or absent, and outputs that never replace what somebody else wrote.

Every command writes through this module: `reserve` is the rule for output folders, `write_stamped` for single
files, `storage` turns what the disk refuses into one message, and `exclusive` is the lock of a folder.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from io import FileIO
from pathlib import Path
from typing import Any

from smoothheads.errors import HeldError, SmoothheadsError, StorageError

LOCK = ".lock"
STAMP = "written by smoothheads"
"""Text in pages, plots and tables by which a command recognises its own output."""
_PARTIAL = re.compile(r"\.(.+)\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.partial")  # .NAME.MACHINE-PROCESS-TOKEN
_FULL = ("no space left", "storagefull", "os error 28", "quota exceeded")


@contextmanager
def storage(path: Path) -> Iterator[None]:
    """Raises a StorageError in place of what the disk refuses (full, no permission, ...).

    Libraries that write by themselves have errors of their own for a full disk, so that the text counts too.
    """
    try:
        yield
    except SmoothheadsError:
        raise
    except Exception as error:
        # Some libraries raise errors of their own, with the system's message inside.
        text = str(error).lower()
        known = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        full = known or any(words in text for words in _FULL)
        if not full and not isinstance(error, OSError) and "ioerror" not in text:
            raise
        reason = getattr(error, "strerror", None) or ("No space left on device" if full else str(error))
        remedy = "free some space and run again" if full else "check the path and its permissions"
        raise StorageError(f"Cannot write {path}: {reason}; {remedy}.") from error


def reserve(
    folder: Path, is_own: Callable[[Path], bool] = lambda _: False, ignore: Collection[str] = ()
) -> None:
    """Raises a StorageError unless a command may write into the folder; nothing is touched.

    The folder may be new, empty, or one that the same command wrote before. Our lock file and what a killed
    process left half written do not count.

    Args:
        folder: the output folder.
        is_own: tells whether the same command wrote the folder.
        ignore: names in the folder that do not count.
    """
    with storage(folder):
        if not folder.exists():
            return
        if not folder.is_dir():
            raise StorageError(f"{folder} is a file, not a folder; choose another place.")
        # Whatever a command wrote before, or half wrote and left, is no obstacle.
        names = sorted(entry.name for entry in folder.iterdir())
    # What is neither ours nor to be ignored belongs to somebody else.
    foreign = [name for name in names if name not in (LOCK, *ignore) and not _PARTIAL.fullmatch(name)]
    if foreign and not is_own(folder):
        some = ", ".join(foreign[:3]) + (", ..." if len(foreign) > 3 else "")
        raise StorageError(f"{folder} is not empty (it holds {some}); choose a new or empty folder.")


def has_stamp(path: Path, stamp: str = STAMP) -> bool:
    """Returns whether the file exists and contains the stamp."""
    try:
        return stamp.encode() in path.read_bytes()
    except OSError:
        return False


def reserve_file(path: Path, stamp: str = STAMP) -> None:
    """Raises a StorageError unless the file is new or carries our stamp; call it before a long run."""
    if path.is_dir() or (path.exists() and not has_stamp(path, stamp)):
        what = "is a folder" if path.is_dir() else "was not written by this command, so it is kept"
        raise StorageError(f"{path} {what}; choose another name.")


def write_stamped(path: Path, data: bytes | str, stamp: str = STAMP) -> None:
    """Writes a file that carries the stamp, where `reserve_file` allows it.

    Args:
        path: The file.
        data: Its content, with the stamp.
        stamp: The text that tells our files from those of others.
    """
    content = data.encode() if isinstance(data, str) else data
    assert stamp.encode() in content, f"{path} without its stamp {stamp!r}"
    reserve_file(path, stamp)
    write_atomic(path, content)


def write_atomic(path: Path, data: bytes | str) -> None:
    """Replaces the file's content; a crash at any moment leaves the old content or the new."""
    with storage(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial(path)
        try:
            # Write, wait for the disk, rename: no reader ever sees a part of the file.
            with partial.open("wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(partial, path)
            sync_folder(path.parent)
        finally:
            partial.unlink(missing_ok=True)


def append(file: FileIO, data: bytes, path: Path) -> None:
    """Appends the data and waits until the disk has it; if it raises, the file is as it was.

    Args:
        file: The open file, without a buffer.
        data: What is appended.
        path: The name of the file, for messages.
    """
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
    """Writes JSON with sorted keys atomically."""
    write_atomic(path, json.dumps(value, indent=2, sort_keys=True) + "\n")


@contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Yields a temporary folder that becomes `path` when the block ends without an error.

    `path` must be new or empty. It appears with all of its files at once; only a mount point or the current
    folder, which cannot be replaced, is filled file by file.
    """
    reserve(path)
    with storage(path):
        # Write beside the place, on the same disk, so that one rename makes it appear.
        path = Path(os.path.abspath(path))
        path.parent.mkdir(parents=True, exist_ok=True)
        _sweep(path.parent, path.name)
        partial = _partial(path)
        partial.mkdir()
        try:
            yield partial
            # All content reaches the disk before the name does.
            for inner in partial.rglob("*"):
                if inner.is_dir():
                    sync_folder(inner)
                else:
                    with inner.open("r+b") as file:
                        os.fsync(file.fileno())
            reserve(path)  # again: the block may have taken hours
            if path.exists() and (os.path.ismount(path) or path == Path.cwd() or os.name == "nt"):
                for inner in sorted(partial.iterdir()):
                    os.replace(inner, path / inner.name)
            else:
                os.replace(partial, path)  # takes the place of an empty folder too
            sync_folder(path.parent)
        finally:
            shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def exclusive(folder: Path, *, wait: bool = False) -> Iterator[None]:
    """Locks the folder for this process; the system releases the lock if the process is killed.

    Removes what a killed process of this machine left half written. A second process waits if `wait` is set,
    and otherwise gets a HeldError that names the holder.
    """
    from filelock import FileLock, Timeout  # not needed to read

    path = folder / LOCK
    with storage(path):
        folder.mkdir(parents=True, exist_ok=True)
        # The system's lock, which ends with its process, however that ends.
        lock = FileLock(path)
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            held_by = holder(folder).partition(" (")[0] or "another process"
            raise HeldError(f"{folder} is in use by {held_by}; wait, or use another folder.") from None
    try:
        # The name tells others who holds the folder, and us whether somebody took it over.
        with storage(path):
            _write_holder(path, _own_name())
            _sweep(folder)
        yield
    finally:
        if holder(folder) == _own_name():
            _write_holder(path, "")
        lock.release()


def check_held(folder: Path) -> None:
    """Raises HeldError unless this process still has the folder that it locked with `exclusive`.

    Where a shared disk does not pass locks on to other machines, two processes may both get one. The second
    one has then written its name into the lock file, and the first one must not publish what it made.
    """
    if os.name != "nt" and (held_by := holder(folder)) != _own_name():
        raise HeldError(
            f"{folder} was taken over by {held_by or 'a process that has ended'}, on a disk that does not "
            "share locks between machines; use another folder."
        )


def holder(folder: Path) -> str:
    """Returns which process on which machine has locked the folder, or "" if none has."""
    try:
        return (folder / LOCK).read_text()
    except OSError:
        return ""


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal digits."""
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


@cache
def _machine() -> str:
    """Returns eight digits for this machine and its set of process numbers.

    Two containers may have the same host name and a process of the same number, but not the same namespace,
    and two machines not the same boot.
    """
    facts = [socket.gethostname()]
    with suppress(OSError):
        facts.append(os.readlink("/proc/self/ns/pid"))
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
    return hashlib.sha256(" ".join(facts).encode()).hexdigest()[:8]


@cache
def _token(process: int) -> str:  # noqa: ARG001
    """Returns random digits of this process; a fork has another number, and so gets its own."""
    return secrets.token_hex(4)


def _own_name() -> str:
    return f"process {os.getpid()} on {socket.gethostname()} ({_machine()}-{_token(os.getpid())})"


def _partial(path: Path) -> Path:
    return path.with_name(f".{path.name}.{_machine()}-{os.getpid()}-{_token(os.getpid())}.partial")


def is_partial(path: Path) -> bool:
    """Returns whether the path is, or lies in, something that is still being written."""
    return any(_PARTIAL.fullmatch(part) for part in path.parts)


def _sweep(folder: Path, name: str | None = None) -> None:
    """Removes what ended processes of this machine left half written of the output `name`, or of any."""
    for entry in folder.glob(".*.partial"):
        # Of other machines nobody can tell here whether the process still runs.
        match = _PARTIAL.fullmatch(entry.name)
        if match and name in (None, match[1]) and match[2] == _machine() and not running(int(match[3])):
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            else:
                entry.unlink(missing_ok=True)


def running(process: int) -> bool:
    """Returns whether this machine has a process of that number, and True where that cannot be told."""
    if os.name == "nt":  # asking there means stopping the process
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        return True
    return True


def _write_holder(path: Path, text: str) -> None:
    with suppress(OSError):  # on Windows a locked file cannot be written
        path.write_text(text)
