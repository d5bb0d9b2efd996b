"""Runs functions on data from outside in a process of its own, which is killed when it takes too long.

A small JPEG can take a minute to decode, and a small JSON text can hold the interpreter's lock for seconds.
In a process of its own neither keeps anybody else waiting: `python -m smoothheads.serve.worker`.
"""

from __future__ import annotations

import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

from smoothheads.errors import DataError, SmoothheadsError, reason

P = ParamSpec("P")
T = TypeVar("T")


class WorkerPool:
    """A few worker processes; they start when they are first needed.

    Args:
        size: Number of processes.
        seconds: Time limit of a call.
    """

    def __init__(self, size: int, seconds: float) -> None:
        self.seconds = seconds
        self._processes: queue.Queue[subprocess.Popen[bytes] | None] = queue.Queue()
        self._closed = False
        for _ in range(size):
            self._processes.put(None)

    def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Returns what the function returns or raises; raises DataError when the time is over.

        Function and arguments are pickled. Blocks until a process is free.
        """
        process = self._processes.get()
        if self._closed:
            self._processes.put(None)
            raise DataError("The server is closing: try again later.")
        try:
            if process is None or process.poll() is not None:
                process = _start()
            value = self._call(process, (function, args, kwargs))
        except (EOFError, OSError, pickle.UnpicklingError):
            if process is not None:
                _end(process)
            process = None
            raise DataError(
                f"This request took more than {self.seconds:g} s to decode: send a simpler file."
            ) from None
        finally:
            if self._closed and process is not None:
                _end(process)
                process = None
            self._processes.put(process)
        if isinstance(value, SmoothheadsError):
            raise value
        result: T = value
        return result

    def _call(self, process: subprocess.Popen[bytes], call: tuple[Any, ...]) -> Any:
        timer = threading.Timer(self.seconds, process.kill)
        timer.start()
        try:
            assert process.stdin
            assert process.stdout
            pickle.dump(call, process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)  # from our own process
        finally:
            timer.cancel()

    def close(self) -> None:
        """Ends the idle processes at once, and the others after their calls."""
        self._closed = True
        for _ in range(self._processes.qsize()):
            try:
                process = self._processes.get_nowait()
            except queue.Empty:
                return
            if process is not None:
                _end(process)
            self._processes.put(None)


def _start() -> subprocess.Popen[bytes]:
    """Starts a process and waits until it has imported what it needs, which does not count as work."""
    command = [sys.executable, "-m", "smoothheads.serve.worker"]
    # In a session of its own: Ctrl-C in the terminal is for the server.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    assert process.stdout
    pickle.load(process.stdout)
    return process


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe:
            try:
                pipe.close()
            except OSError:
                continue


def main() -> None:
    """Calls what comes through stdin, until it is closed."""
    from smoothheads.serve import images, schemas  # noqa: F401  (now, and not within the first call's time)

    calls, results = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may write between the results
    pickle.dump("ready", results)
    results.flush()
    while True:
        try:
            function, args, kwargs = pickle.load(calls)
        except EOFError:
            return
        try:
            value = function(*args, **kwargs)
        except SmoothheadsError as error:
            value = error
        except (
            Exception
        ) as error:  # a decoder that stumbles: the client gets a message, not the server's fault
            value = DataError(f"This request could not be decoded ({reason(error)}): send another file.")
        pickle.dump(value, results)
        results.flush()


if __name__ == "__main__":
    main()
