"""Runs functions on data from outside in a process of its own, which is killed when it takes too long.

A small JPEG can take a minute to decode, and a small JSON text can hold the interpreter's lock for seconds.
In a process of its own neither keeps anybody else waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from anyio import BrokenWorkerProcess, CapacityLimiter, fail_after, to_process

from smoothheads.errors import DataError, SmoothheadsError, reason

T = TypeVar("T")

START_SECONDS: Final = 60.0
"""Time in which a new process must be ready."""


class Workers:
    """A few processes of anyio, which start when they are first needed and end with the event loop."""

    def __init__(self, size: int, seconds: float) -> None:
        self._free, self.seconds = CapacityLimiter(size), seconds

    async def run(self, function: Callable[..., T], *args: object) -> T:
        """Returns what the function returns; raises what it raises, or DataError when the time is over.

        Function and arguments are pickled. Waits until a process is free, and kills it if the caller is
        cancelled.
        """
        async with self._free:
            try:
                # What a new process imports does not count as work; the process that was ready last is taken.
                with fail_after(START_SECONDS):
                    await to_process.run_sync(_prepare, cancellable=True)
                with fail_after(self.seconds):
                    return await to_process.run_sync(_attempt, function, args, cancellable=True)
            except (TimeoutError, BrokenWorkerProcess):
                raise DataError(
                    f"This request took more than {self.seconds:g} s to decode: send a simpler file."
                ) from None


def _prepare() -> None:
    from PIL import Image

    from smoothheads.serve import images, schemas  # noqa: F401

    Image.preinit()  # Pillow looks for its decoders


def _attempt(function: Callable[..., T], args: tuple[object, ...]) -> T:
    try:
        return function(*args)
    except SmoothheadsError:
        raise
    except Exception as error:
        # A decoder that stumbles is not the server's fault: the client gets a message.
        text = f"This request could not be decoded ({reason(error)}): send another file."
        raise DataError(text) from None
