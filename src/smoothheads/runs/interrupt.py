"""Ctrl-C between two steps instead of inside one, so that the state can be saved first."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupt:
    """Inside the block the first SIGINT or SIGTERM only asks; a second one stops at once."""

    def __init__(self) -> None:
        self.requested = False
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> Interrupt:
        if threading.current_thread() is threading.main_thread():  # handlers cannot be set elsewhere
            for number in (signal.SIGINT, signal.SIGTERM):
                self._before[number] = signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
