"""Many clients for a minute: nobody fails but by 429, memory stays flat, a killed client's work stops.

    python -m benchmarks.serve_load RUN [--clients 50] [--seconds 60]

Everything stays on this machine. Exit code 0 if all of that holds.
"""

from __future__ import annotations

import argparse
import http.client
import io
import json
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import numpy as np
from PIL import Image

from smoothheads.serve import Limits, Server

ALLOWED = {200, 429}


def picture(shape: tuple[int, int, int], generator: np.random.Generator) -> bytes:
    channels, height, width = shape
    pixels = generator.integers(
        0, 256, (height, width) if channels == 1 else (height, width, 3), dtype=np.uint8
    )
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "png")
    return out.getvalue()


def request(port: int, path: str, image: bytes, fields: dict[str, object], accept: str = "*/*") -> int:
    """The status of one whole answer; 0 for a connection that failed."""
    body = b"".join(
        f'--edge\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    )
    body += b'--edge\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n' + image
    headers = {"Content-Type": "multipart/form-data; boundary=edge", "Accept": accept}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", path, body + b"\r\n--edge--\r\n", headers)
        response = connection.getresponse()
        response.read()
        return response.status
    except OSError:
        return 0
    finally:
        connection.close()


def metric(port: int, name: str) -> float:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return next(
        float(line.split()[1]) for line in text.splitlines() if line.startswith(f"smoothheads_{name} ")
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    with Server(args.run, port=0, limits=Limits(n=2000)) as server:
        return load(server.port, args.clients, args.seconds)


def load(port: int, clients: int, seconds: float) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/v1/model")
    shape = tuple(json.loads(connection.getresponse().read())["shape"])
    statuses: Counter[int] = Counter()
    end = time.monotonic() + seconds

    def client(number: int) -> None:
        chance, generator = random.Random(number), np.random.default_rng(number)
        while time.monotonic() < end:
            path = chance.choice(["/v1/predict", "/v1/certify", "/v1/certify"])
            accept = chance.choice(["*/*", "text/event-stream"])
            status = request(port, path, picture(shape, generator), {"n": chance.choice([100, 500])}, accept)
            statuses[status] += 1
            time.sleep(0.05 if status == 200 else 0.5)  # as a polite client does after a 429

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    time.sleep(seconds / 3)  # everything that is made once is made
    before = metric(port, "resident_bytes")
    for thread in threads:
        thread.join()
    after = metric(port, "resident_bytes")
    stopped = kill(port, picture(shape, np.random.default_rng()))
    failed = {status: count for status, count in statuses.items() if status not in ALLOWED}
    grown = (after - before) / 2**20
    print(f"{clients} clients, {seconds:g} s: {dict(statuses)}; memory {grown:+.1f} MiB; killed: {stopped}")
    return int(bool(failed) or grown > 40 or stopped != "its work stopped" or not statuses[200])


def kill(port: int, image: bytes) -> str:
    """Drops a connection in the middle of a certificate."""
    body = b'--edge\r\nContent-Disposition: form-data; name="image"; filename="x"\r\n\r\n' + image
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    headers = {"Content-Type": "multipart/form-data; boundary=edge", "Accept": "text/event-stream"}
    connection.request("POST", "/v1/certify", body + b"\r\n--edge--\r\n", headers)
    response = connection.getresponse()
    while b"moment" not in response.readline():
        pass
    response.close()
    connection.close()
    for _ in range(20):
        steps = metric(port, "steps")
        time.sleep(0.5)
        if metric(port, "steps") == steps:
            return "its work stopped"
    return "its work went on"


if __name__ == "__main__":
    sys.exit(main())
