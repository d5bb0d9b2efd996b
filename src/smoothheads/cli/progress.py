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
    """`update(done)` as often as one likes; everything goes to standard error. The time left is measured:
    from what was done since the work began, whatever came before."""

    def __init__(self, title: str, total: int | None = None) -> None:
        self.title, self.total, self.done = title, total, 0
        self._opened = self._started = self._said = time.monotonic()
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
        """Work of `total` begins now, of which an earlier run had done some already."""
        self.total, self.done, self._first = total, done, done
        self._started = time.monotonic()
        if self._bar:
            self._bar.reset(self._task, total=total, completed=done)

    def prepare(self, done: int, total: int) -> None:
        """What comes before the work itself: so many of the training images are read, perhaps in rounds."""
        if self.total != total or done < self.done:
            self.begin(total)
        self.update(done, "images of the training set, in preparation")

    def add(self, count: int, note: str = "") -> None:
        self.update(self.done + count, note)

    def update(self, done: int, note: str = "") -> None:
        self.done = done
        if self._bar:
            self._bar.update(self._task, completed=done)
            if note:
                self._bar.update(self._task, note=note)
            return
        now = time.monotonic()
        if self.total and now - self._said >= LINE_SECONDS and self._first < done < self.total:
            self._said = now
            left = (now - self._started) / (done - self._first) * (self.total - done)
            say(f"{self.title}: {done / self.total:.0%}, {duration(left)} left{', ' + note if note else ''}")
