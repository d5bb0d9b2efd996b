"""Errors that a user can act on: one sentence that says what is wrong and what to do."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable
from typing import Any

LONGEST = 2000  # characters of a message: a wrong value may be a whole file


def shown(text: str) -> str:
    """Returns text from outside as a terminal can show it: control characters as escapes, and cut."""
    cut = text if len(text) <= LONGEST else f"{text[:LONGEST]}..."
    return printable(cut)


def printable(text: str) -> str:
    """Returns text without the control characters that a file's name may hold; line breaks stay."""
    return "".join(c if c.isprintable() or c == "\n" else repr(c)[1:-1] for c in text)


def duration(seconds: float) -> str:
    """Returns a time as 8 s, 3 min 05 s, 2 h 10 min or 4.0 days; it is never 0."""
    if seconds < 100:
        return f"{max(1, round(seconds))} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 100:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours < 72 else f"{hours / 24:.1f} days"


class SmoothheadsError(Exception):
    """Base of every error that a user can act on; the command line prints it and exits with 2."""

    def __init__(self, message: str) -> None:
        super().__init__(shown(message))

    def __reduce__(self) -> tuple[object, ...]:
        # Workers hand errors on by pickle, which must not call the __init__ of a class with other arguments.
        return _rebuild, (type(self), str(self)), self.__dict__


class ConfigError(SmoothheadsError):
    """A setting that is unknown, of the wrong type, out of range or contradictory."""


class SettingError(ConfigError):
    """A setting that is unknown or out of range; `key` is its dotted name, such as `train.epochs`."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(message)
        self.key = key


class DataError(SmoothheadsError):
    """A data set that is missing, damaged or not of the announced form."""


class CheckpointError(SmoothheadsError):
    """A checkpoint or training state that is missing, damaged, foreign or of another run."""


class LedgerError(SmoothheadsError):
    """A certification ledger or log that is damaged, held by another process or of another run."""


class SoundnessError(SmoothheadsError):
    """Something that would make a certificate wrong; certification stops."""


class StorageError(SmoothheadsError):
    """A file that could not be written; what was there before is still whole."""


class HeldError(StorageError):
    """A folder that another process has for itself at the moment."""


class HubError(SmoothheadsError):
    """A repository on the Hub that is missing, out of reach, or refused."""


class TrainingError(SmoothheadsError):
    """Training that cannot go on, such as a loss that is not finite."""


class WorkerError(SmoothheadsError):
    """A process of ours that died or no longer answers; what the others finished is safe."""


class MissingExtraError(SmoothheadsError):
    """An optional dependency that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed: run pip install 'smoothheads[{extra}]'.")


def import_extra(package: str, extra: str) -> Any:
    """Imports an optional dependency; raises MissingExtraError, which names the extra that installs it."""
    try:
        return importlib.import_module(package)
    except ImportError:
        raise MissingExtraError(package, extra) from None


def reason(error: BaseException) -> str:
    """Returns what code from outside raised, in one line."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"


def _rebuild(kind: type[SmoothheadsError], message: str) -> SmoothheadsError:
    error = kind.__new__(kind)
    SmoothheadsError.__init__(error, message)
    return error


_MANY, _FEW = 40, 4  # names that fit a message, and how many stand for more than that


def suggest(name: str, known: Iterable[str]) -> str:
    """Returns the remedy for an unknown name: the nearest known one, else all of them, or some of many."""
    names = sorted(map(str, known))
    if near := difflib.get_close_matches(name, names, n=1, cutoff=0.5):
        return f"did you mean {near[0]!r}?"
    if len(names) > _MANY:
        few = names[:: -(-len(names) // _FEW)]
        return f"choose one of {len(names)}, such as {', '.join(few)}."
    return f"choose from {', '.join(names)}."


def one_of(kind: str, name: object, known: Iterable[str]) -> ConfigError:
    """Returns the error for a `name` that is no known `kind`; it suggests the nearest one."""
    return ConfigError(f"Unknown {kind} {name!r}: {suggest(str(name), known)}")
