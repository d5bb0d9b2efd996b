"""Progress with time left: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from smoothheads.cli.common import say
from smoothheads.errors import duration

LINE_SECONDS = 10.0


class Progress:
    """Shows progress on standard error; `update(done)` may be called as often as one likes.

    The time left is extrapolated from what was done since the work began; what an earlier run did does not
    count.
    """

    def __init__(self, title: str, total: int | None = None) -> None:
        self.title, self.total, self.done = title, total, 0
        self._opened = self._started = self._printed = time.monotonic()
        self._first = 0
        self._bar: RichProgress | None = None
        if sys.stderr.isatty():
            self._bar = RichProgress(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TimeRemainingColumn(),
                TextColumn("{task.fields[note]}"),
                console=Console(file=sys.stderr),
            )
            self._task = self._bar.add_task(title, total=total, note="")

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()
        elif kind is None:
            say(f"{self.title}: done in {duration(time.monotonic() - self._opened)}")

    def begin(self, total: int, done: int = 0) -> None:
        """Starts the clock for work of `total`, of which an earlier run had done `done` already."""
        self.total, self.done, self._first = total, done, done
        self._started = time.monotonic()
        if self._bar:
            self._bar.reset(self._task, total=total, completed=done)

    def prepare(self, done: int, total: int) -> None:
        """Shows the preparation of the training images, which may go over them several times."""
        if self.total != total or done < self.done:
            self.begin(total)
        self.update(done, "images of the training set, in preparation")

    def add(self, count: int, note: str = "") -> None:
        """Counts `count` more as done."""
        self.update(self.done + count, note)

    def update(self, done: int, note: str = "") -> None:
        """Shows that `done` is done: at once in the bar, every ten seconds as a line."""
        self.done = done
        if self._bar:
            self._bar.update(self._task, completed=done)
            if note:
                self._bar.update(self._task, note=note)
            return
        now = time.monotonic()
        if self.total and now - self._printed >= LINE_SECONDS and self._first < done < self.total:
            self._printed = now
            left = (now - self._started) / (done - self._first) * (self.total - done)
            say(f"{self.title}: {done / self.total:.0%}, {duration(left)} left{', ' + note if note else ''}")
