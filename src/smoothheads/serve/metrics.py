"""Counters in Prometheus' text format."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator

_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)


class Metrics:
    """Labels are names of our own (routes, statuses), so their number is bounded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._started = time.time()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._buckets: Counter[float] = Counter()
        self._seconds, self._answers = 0.0, 0
        self.samples = 0
        self.images = 0
        self.gauges: dict[str, tuple[str, Callable[[], float]]] = {}

    def request(self, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[route, status] += 1
            self._answers += 1
            self._seconds += seconds
            for bucket in _BUCKETS:
                self._buckets[bucket] += seconds <= bucket

    def add(self, *, samples: int = 0, images: int = 0) -> None:
        with self._lock:
            self.samples += samples
            self.images += images

    def text(self) -> str:
        with self._lock:
            return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from _header("requests_total", "counter", "Answered requests")
        for (route, status), count in sorted(self._requests.items()):
            yield f'smoothheads_requests_total{{route="{route}",status="{status}"}} {count}'
        yield from _header("request_seconds", "histogram", "Time to the end of an answer")
        for bucket in _BUCKETS:
            yield f'smoothheads_request_seconds_bucket{{le="{bucket:g}"}} {self._buckets[bucket]}'
        yield f'smoothheads_request_seconds_bucket{{le="+Inf"}} {self._answers}'
        yield f"smoothheads_request_seconds_sum {self._seconds:.6f}"
        yield f"smoothheads_request_seconds_count {self._answers}"
        yield from _header("samples_total", "counter", "Noisy samples classified")
        yield f"smoothheads_samples_total {self.samples}"
        yield from _header("images_total", "counter", "Images answered")
        yield f"smoothheads_images_total {self.images}"
        yield from _header("start_time_seconds", "gauge", "When the server started")
        yield f"smoothheads_start_time_seconds {self._started:.3f}"
        for name, (help_text, read) in self.gauges.items():
            yield from _header(name, "gauge", help_text)
            yield f"smoothheads_{name} {read():g}"


def _header(name: str, kind: str, help_text: str) -> Iterator[str]:
    yield f"# HELP smoothheads_{name} {help_text}."
    yield f"# TYPE smoothheads_{name} {kind}"
