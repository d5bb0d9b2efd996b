"""Load test of the server: 200 clients for a minute, with good, bad and slow requests.

    python -m benchmarks.serve_load RUN

The server runs in a process of its own, the clients in threads of this one, each from an address of its own
(127.0.0.0/8), as different machines would be. Exits with 0 if no request failed other than by a limit (4xx)
and memory returned to within 200 MB; docs/serving.md has the results.
"""

from __future__ import annotations

import http.client
import io
import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import numpy as np
import tyro
from PIL import Image

SMALL = 200
"""Samples of a small request."""
MEMORY = 200 * 2**20


@dataclass(frozen=True, kw_only=True)
class Settings:
    run: Annotated[Path, tyro.conf.Positional]
    """Checkpoint, training run or export."""
    clients: int = 200
    seconds: float = 60.0


def photograph() -> bytes:
    out = io.BytesIO()
    Image.effect_noise((1600, 1200), 60).save(out, "jpeg", progressive=True)
    return out.getvalue()


PHOTO = photograph()


@dataclass
class Load:
    """Clients of one server, and what they met."""

    port: int
    shape: tuple[int, int, int]
    statuses: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def request(self, client: int, body: bytes, kind: str, path: str, accept: str = "*/*") -> int:
        """Sends one request and reads the whole answer; returns the status."""
        source = (f"127.0.{1 + client // 250}.{1 + client % 250}", 0)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120, source_address=source)
        try:
            connection.request("POST", path, body, {"Content-Type": kind, "Accept": accept})
            response = connection.getresponse()
            response.read()
            return response.status
        finally:
            connection.close()

    def predict(self, client: int, n: int) -> int:
        """Sends a small image as a form."""
        channels, height, width = self.shape
        pixels = np.random.default_rng(client).integers(0, 256, (height, width, 3), dtype=np.uint8)
        out = io.BytesIO()
        Image.fromarray(pixels[..., 0] if channels == 1 else pixels).save(out, "png")
        return self.request(client, *form(out.getvalue(), n), "/v1/predict")

    def certify(self, client: int) -> int:
        """Watches a certificate of 2,000 samples."""
        channels, height, width = self.shape
        body = json.dumps({"pixels": np.zeros((channels, height, width), int).tolist(), "n": 2000})
        return self.request(client, body.encode(), "application/json", "/v1/certify", "text/event-stream")

    def photo(self, client: int) -> int:
        """Sends a photograph of two million pixels to be resized."""
        return self.request(client, *form(PHOTO, SMALL, resize="true"), "/v1/predict")

    def bad(self, client: int) -> int:
        """Sends one of several kinds of nonsense."""
        nonsense = (
            b"{",
            b"[" * 100_000,
            b'{"pixels": [' + b"[]," * 300_000 + b"[]]}",
            b'{"image": "AAAA", "n": 1' + b"0" * 400 + b"}",
            b'{"image": "' + b"A" * 2_000_000 + b'"}',
        )
        body = random.Random(time.monotonic()).choice(nonsense)
        return self.request(client, body, "application/json", "/v1/certify")

    def slow(self, client: int) -> int:
        """Begins a request and leaves it: half of the headers, half of the body, or before the answer."""
        head = b"POST /v1/predict HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        kinds = (head[:40], head + b"Content-Length: 100000\r\n\r\n" + b"{" * 50_000)
        source = (f"127.0.{1 + client // 250}.{1 + client % 250}", 0)
        with socket.create_connection(("127.0.0.1", self.port), 60, source) as connection:
            connection.sendall(random.Random(time.monotonic()).choice(kinds))
            time.sleep(random.Random(client).uniform(0.0, 5.0))
        return 0

    def client(self, number: int, end: float) -> None:
        """Sends requests until the end; a polite client waits longer after a refusal."""
        chance = random.Random(number)
        kinds: list[Callable[[int], int]] = (
            [self.certify] * 4 + [self.photo] + [self.bad] * 2 + [self.slow] * 2
        )
        while time.monotonic() < end:
            kind = chance.choice(kinds)
            try:
                status = kind(number)
            except OSError as error:
                self.failures.append(f"{kind.__name__}: {error!r}")
                continue
            self.statuses[f"{kind.__name__} {status or 'left'}"] += 1
            if status >= 500:
                self.failures.append(f"{kind.__name__}: {status}")
            time.sleep(chance.uniform(0.0, 0.5) if status in (0, 200) else 2.0)

    def metric(self, name: str) -> float:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        return next(float(line.split()[1]) for line in text.splitlines() if line.startswith(f"{name} "))

    def timed(self, count: int, pause: float = 0.0) -> list[float]:
        """Returns the seconds of small requests that were answered."""
        times = []
        for number in range(count):
            started = time.monotonic()
            status = self.predict(10_000 + number, SMALL)
            self.statuses[f"small {status}"] += 1
            if status == 200:
                times.append(time.monotonic() - started)
            time.sleep(pause)
        return times


def form(image: bytes, n: int, **fields: str) -> tuple[bytes, str]:
    """Returns body and content type of a form."""
    parts = [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in {"n": str(n), **fields}.items()]
    parts.append(b'name="image"; filename="x"\r\n\r\n' + image)
    body = b"".join(b"--edge\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts)
    return body + b"--edge--\r\n", "multipart/form-data; boundary=edge"


def run(settings: Settings) -> int:
    """Starts the server, loads it, and reports; returns the exit code."""
    command = [sys.executable, "-m", "smoothheads", "serve", str(settings.run), "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr
        try:
            address = server.stderr.readline().partition("open ")[2].split()[0]
            port = urlsplit(address).port or 0
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
            connection.request("GET", "/v1/model")
            shape = json.loads(connection.getresponse().read())["shape"]
            connection.close()
            return report(Load(port, tuple(shape)), settings)
        finally:
            server.terminate()


def probe(port: int, shape: tuple[int, int, int], seconds: float) -> tuple[list[float], int]:
    """Sends small requests one after another; returns their seconds, and how many were refused."""
    load, times, end = Load(port, shape), [], time.monotonic() + seconds
    while time.monotonic() < end:
        with suppress(OSError):
            times += load.timed(1, pause=0.25)
    return times, load.statuses["small 429"]


def report(load: Load, settings: Settings) -> int:
    load.photo(0)  # so that the worker process is there
    idle = sorted(load.timed(20))[10]
    before = load.metric("process_resident_memory_bytes")
    end = time.monotonic() + settings.seconds
    threads = [threading.Thread(target=load.client, args=(i, end)) for i in range(settings.clients)]
    for thread in threads:
        thread.start()
    # In a process of its own, which does not wait for 200 threads in one interpreter.
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        times, refused = pool.submit(probe, load.port, load.shape, settings.seconds).result()
    for thread in threads:
        thread.join()
    time.sleep(5)  # for what was abandoned to end
    grown = load.metric("process_resident_memory_bytes") - before
    print(f"{settings.clients} clients for {settings.seconds:g} s")
    print(", ".join(f"{name}: {count}" for name, count in sorted(load.statuses.items())))
    print(f"failed: {len(load.failures)} {load.failures[:3]}")
    print(f"small requests: {idle:.3f} s on the idle server; under load {len(times)} answered, ", end="")
    print(f"{refused} refused, median {np.median(times):.3f} s, slowest {max(times):.3f} s")
    print(f"memory: {before / 2**20:.0f} MiB before, {grown / 2**20:+.0f} MiB after")
    return int(bool(load.failures) or grown > MEMORY or not times)


if __name__ == "__main__":
    sys.exit(run(tyro.cli(Settings, description=__doc__)))
