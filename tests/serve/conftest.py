"""A server on a small run, and requests to it."""

from __future__ import annotations

import http.client
import io
import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
from PIL import Image

from smoothheads.cli import main
from smoothheads.serve import Limits, Server

pytest.importorskip("fastapi", reason="the extra serve is not installed")
BUDGETS = ("fixed", "table", "anytime")


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    url: str
    headers: dict[str, str] = field(default_factory=dict)

    def connection(self) -> http.client.HTTPConnection:
        parts = urlsplit(self.url)
        return http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)

    def request(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = self.connection()
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request(method, path, body, self.headers | named)
        response = connection.getresponse()
        answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        connection.close()
        return answer

    def get(self, path: str, *query: tuple[str, Any], **headers: str) -> Answer:
        return self.request("GET", f"{path}?{urlencode(query)}" if query else path, None, **headers)

    def json(self, path: str, value: Any) -> Answer:
        return self.request("POST", path, json.dumps(value).encode(), Content_Type="application/json")

    def form(self, path: str, *files: bytes, **fields: Any) -> Answer:
        body, kind = form(*files, **fields)
        return self.request("POST", path, body, Content_Type=kind)

    def events(self, path: str, *files: bytes, **fields: Any) -> Iterator[tuple[str, Any]]:
        """Closing the iterator closes the connection."""
        body, kind = form(*files, **fields)
        connection = self.connection()
        accept = {"Content-Type": kind, "Accept": "text/event-stream"}
        connection.request("POST", path, body, self.headers | accept)
        response = connection.getresponse()
        assert response.status == 200, response.read()
        try:
            name = ""
            for line in response:
                word, _, rest = line.decode().strip().partition(": ")
                if word == "event":
                    name = rest
                elif word == "data":
                    yield name, json.loads(rest)
        finally:
            response.close()
            connection.close()

    def metric(self, name: str) -> float:
        """One value of /metrics, such as the number of passes that the server has made."""
        lines = self.get("/metrics").body.decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))


def form(*files: bytes, **fields: Any) -> tuple[bytes, str]:
    parts = [f'name="{name}"\r\n\r\n{value}'.encode() for name, value in fields.items()]
    parts += [
        b'name="image"; filename="../../x.png"\r\nContent-Type: image/png\r\n\r\n' + file for file in files
    ]
    body = b"".join(b"--edge\r\nContent-Disposition: form-data; " + part + b"\r\n" for part in parts)
    return body + b"--edge--\r\n", "multipart/form-data; boundary=edge"


def picture(mode: str = "L", size: tuple[int, int] = (8, 8), kind: str = "png", **options: Any) -> bytes:
    out = io.BytesIO()
    image = Image.new(mode, size)
    image.putpixel((2, 2), {"L": 200, "RGB": (200, 200, 200)}.get(mode, 0))  # type: ignore[arg-type]
    image.save(out, kind, **options)
    return out.getvalue()


def wait_until(true: Callable[[], bool], seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of `train digits-some`, with ledgers of three budgets."""
    folder = tmp_path_factory.mktemp("run") / "some"
    assert main(["train", "digits-some", "--train.epochs", "3", "--out", str(folder)]) == 0
    for budget in BUDGETS:
        options = ["--budget", budget, "--n", "500", "--first", "6", "--seed", "0"]
        assert main(["certify", str(folder), *options, "--out", str(folder / f"ledger-{budget}")]) == 0
    return folder


@pytest.fixture(scope="session")
def runs_folder(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run, a foreign log with an odd name, and a ledger that is broken."""
    folder = tmp_path_factory.mktemp("served") / "runs"
    shutil.copytree(run, folder / "some")
    odd = folder / "<img src=x onerror=alert(1)>.tsv"
    odd.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0:00:01\n")
    shutil.copytree(run / "ledger-fixed", folder / "broken")
    (folder / "broken" / "manifest.json").write_text("{")
    return folder


@pytest.fixture(scope="session")
def server(runs_folder: Path) -> Iterator[Server]:
    limits = Limits(
        n=20_000, seconds=20, images=4, body=200_000, pixels=10_000, at_once=2, queue=2, patience=3
    )
    with Server(runs_folder, port=0, limits=limits) as server:
        wait_until(lambda: Client(server.url).get("/readyz").status == 200)
        yield server


@pytest.fixture
def client(server: Server) -> Client:
    return Client(server.url)
