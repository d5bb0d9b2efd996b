"""Requests that hurt: slow, large, abandoned and endless ones, and files that block whoever opens them."""

from __future__ import annotations

import asyncio
import io
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sized
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from PIL import Image

from smoothheads.data import images
from smoothheads.errors import DataError
from smoothheads.serve import Limits, Server
from smoothheads.serve.api import SMALL_JSON
from smoothheads.serve.guard import QuietAccept
from smoothheads.serve.images import is_small
from smoothheads.serve.runs import RunIndex
from smoothheads.serve.worker import Workers

from .conftest import Client, form, picture, wait_until


def connect(server: Server, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", urlsplit(server.url).port or 0), timeout=30)
    connection.sendall(sent)
    return connection


def head(length: int, kind: str = "application/json") -> bytes:
    return (
        f"POST /v1/certify HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n"
        f"Content-Length: {length}\r\nAccept: text/event-stream\r\n\r\n"
    ).encode()


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def large_jpeg() -> bytes:
    """A progressive JPEG of four million pixels, which takes a good part of a second to decode."""
    out = io.BytesIO()
    Image.effect_noise((2000, 2000), 60).save(out, "jpeg", progressive=True, quality=80)
    return out.getvalue()


def test_abandoned_requests_free_the_queue(server: Server, client: Client) -> None:
    """Clients that post and close before the answer begins leave nothing behind."""
    body, kind = form(picture(), n=20_000)
    for _ in range(40):
        connect(server, head(len(body), kind) + body).close()
    wait_until(lambda: client.form("/v1/predict", picture(), n=100).status == 200)
    wait_until(lambda: client.metric("smoothheads_requests_active") == 0)
    assert client.metric("smoothheads_requests_waiting") == 0


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: loc", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\nGET /he"]
)
def test_headers_have_a_time_limit(server: Server, sent: bytes) -> None:
    with connect(server, sent) as connection:
        answer = b""
        while part := connection.recv(4096):
            answer += part
        assert answer == b"" or answer.startswith(b"HTTP/1.1 200")


def test_connections_per_address_are_bounded(run: Path) -> None:
    with Server(run, port=0, limits=Limits(connections=4)) as server, ExitStack() as stack:
        held = [stack.enter_context(connect(server)) for _ in range(4)]
        with connect(server) as refused:
            assert is_closed(refused)
        held[0].close()

        def is_free() -> bool:
            try:
                return Client(server.url).get("/healthz").status == 200
            except OSError:
                return False

        wait_until(is_free)


def test_all_bodies_together_are_bounded(run: Path) -> None:
    limits = Limits(body=2**20, bodies=2**20, patience=120)
    with Server(run, port=0, limits=limits) as server, ExitStack() as stack:
        client = Client(server.url)
        for _ in range(3):
            part = head(500_000) + b'{"image": "' + b"A" * 340_000
            stack.enter_context(connect(server, part))
        wait_until(lambda: client.metric("smoothheads_body_bytes") > 1_000_000)
        body = b'{"image": "' + b"A" * 50_000 + b'"}'
        refused = client.request("POST", "/v1/predict", body, Content_Type="application/json")
        assert refused.status == 429
        stack.close()
        wait_until(lambda: client.metric("smoothheads_body_bytes") == 0)
        answer = client.request("POST", "/v1/predict", body, Content_Type="application/json")
        assert answer.status == 422


def test_slow_image_is_cut_off_and_nobody_waits(run: Path) -> None:
    data = large_jpeg()
    assert not is_small(data)
    with Server(run, port=0, limits=Limits(parse_seconds=0.01)) as server:
        client = Client(server.url)
        answers = []

        def ask() -> None:
            answers.append(client.form("/v1/predict", data, n=100, resize="true"))

        slow = threading.Thread(target=ask)
        slow.start()
        while slow.is_alive():  # whoever sends a small image does not wait for the large one
            assert client.form("/v1/predict", picture(), n=100).status == 200
        slow.join()
        assert answers[0].status == 422
        assert "0.01 s to decode" in answers[0].json()["error"]


def test_large_json_is_parsed_in_a_worker(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    plain = Workers.run

    async def recorded(self: Workers, function: Callable[..., object], *args: Sized) -> object:
        parsed.append(len(args[0]))
        return await plain(self, function, *args)

    monkeypatch.setattr(Workers, "run", recorded)
    body = b'{"pixels": [' + b"[]," * 10**6 + b"[]]}"
    with Server(run, port=0, limits=Limits(parse_seconds=60)) as server:
        answer = Client(server.url).request("POST", "/v1/predict", body, Content_Type="application/json")
        assert answer.status == 422
        assert "[1000001x0]" in answer.json()["error"]
        answer = Client(server.url).json("/v1/predict", {"pixels": [[[0] * 8] * 8], "n": 100})
        assert answer.status == 200
    assert parsed == [len(body)]
    assert len(body) > SMALL_JSON


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no FIFOs on this system")
def test_fifo_in_the_folder_is_left_alone(run: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(run, folder / "some")
    shutil.copytree(run, folder / "other")
    shutil.copytree(run / "ledger-fixed", folder / "ledger")
    os.mkfifo(folder / "log.tsv")
    for name in ("ledger/ledger.tsv", "other/checkpoint/config.json", "other/metrics.jsonl"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    contents = RunIndex(folder).contents()
    assert set(contents.networks) == {"some"}
    assert set(contents.trainings) == {"some"}
    assert not {"ledger", "log.tsv"} & set(contents.ledgers)
    with Server(folder, port=0) as server:
        client = Client(server.url)
        assert client.get("/v1/runs").status == 200
        assert client.get("/v1/model").status == 200


@pytest.fixture
def poor_server(run: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A server in a process that may open only 64 files."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64));"
        "from smoothheads.cli import main; sys.exit(main(['serve', sys.argv[1], '--port', '0']))"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(run)], stderr=subprocess.PIPE) as process:
        yield process
        process.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_few_file_descriptors(poor_server: subprocess.Popen[bytes]) -> None:
    """With no descriptor left the server waits instead of filling its log, and then goes on."""
    assert poor_server.stderr
    first = poor_server.stderr.readline().decode()
    client = Client(first.partition("open ")[2].split()[0])
    wait_until(lambda: client.get("/readyz").status == 200, seconds=120)
    port = urlsplit(client.url).port or 0
    held = [socket.create_connection(("127.0.0.1", port)) for _ in range(90)]
    time.sleep(3)
    for connection in held:
        connection.close()

    def answers() -> bool:
        try:
            return client.get("/healthz").status == 200
        except OSError:
            return False

    wait_until(answers)
    poor_server.send_signal(signal.SIGTERM)
    log = poor_server.stderr.read()
    assert b"no new connections" in log
    assert len(log) < 5000, log[:2000]


def test_quiet_accept_reports_once(caplog: pytest.LogCaptureFixture) -> None:
    handler, loop = QuietAccept(), asyncio.new_event_loop()
    for _ in range(100):
        handler(loop, {"message": "socket.accept() out of system resource", "exception": OSError(24, "many")})
    assert len(caplog.records) == 1
    handler(loop, {"message": "another problem"})
    assert len(caplog.records) == 2
    loop.close()


def test_workers_results_errors_and_time() -> None:
    async def test() -> None:
        workers = Workers(1, seconds=5.0)
        assert await workers.run(sorted, [2, 1]) == [1, 2]
        with pytest.raises(DataError, match="more than 5 s"):
            await workers.run(time.sleep, 60)
        assert await workers.run(sorted, [3, 2]) == [2, 3]  # in a new process
        with pytest.raises(DataError, match="ZeroDivisionError"):
            await workers.run(divmod, 1, 0)
        with pytest.raises(DataError, match="image 1"):
            await workers.run(images.decode, b"no image", "image 1")

    asyncio.run(test())


def test_worker_of_a_client_who_left_is_free_at_once() -> None:
    async def test() -> None:
        workers = Workers(1, seconds=100.0)
        abandoned = asyncio.ensure_future(workers.run(time.sleep, 100))
        await asyncio.sleep(5)
        abandoned.cancel()
        assert await workers.run(sorted, [2, 1]) == [1, 2]

    started = time.monotonic()
    asyncio.run(test())
    assert time.monotonic() - started < 90
