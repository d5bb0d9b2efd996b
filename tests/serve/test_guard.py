"""Who may ask, and what a browser may do with the answer."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from smoothheads.errors import CheckpointError, ConfigError
from smoothheads.serve import Server, notebook

from .conftest import Client, form, picture

TOKEN = "a-token-of-some-length"


@pytest.fixture(scope="module")
def guarded(runs_folder: Path) -> Iterator[Server]:
    with Server(runs_folder, port=0, token=TOKEN) as server:
        yield server


def test_other_host_or_origin_gives_403(client: Client) -> None:
    assert client.get("/v1/models", Host="evil.example").status == 403
    assert client.get("/v1/models", Origin="http://evil.example").status == 403
    assert client.get("/v1/models", Origin="null").status == 403
    own = client.url.rstrip("/")
    for other in (f"{own}.evil.example", f"{own}0", own[:-1], own.rpartition(":")[0], f"{own}/x"):
        assert client.get("/v1/models", Origin=other).status == 403
    assert client.get("/v1/models", Origin=own).status == 200
    body, kind = form(picture(), n=100)
    answer = client.request("POST", "/v1/predict", body, Content_Type=kind, Origin="http://evil.example")
    assert answer.status == 403
    assert "access-control-allow-origin" not in answer.headers


def test_security_headers(client: Client) -> None:
    headers = client.get("/").headers
    policy = headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert "server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/../app.py",
        "/static/app.js",
        "/page/../app.py",
        "/page/..%2fapp.py",
        "/page/",
        "/..%2fapp.py",
        "/etc/passwd",
        "//etc/passwd",
    ],
)
def test_path_traversal_gives_404(client: Client, path: str) -> None:
    assert client.request("GET", path).status == 404


def test_page_fetches_nothing_from_elsewhere() -> None:
    from smoothheads.serve.app import STATIC

    for path in STATIC.iterdir():
        text = path.read_text().replace("http://www.w3.org/", "")
        assert "http://" not in text, path
        assert "https://" not in text, path
        assert "innerHTML" not in text, path


def test_page_and_its_files_are_served(client: Client) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    for address in re.findall(r'(?:href|src)="(/[^"]+)"', page.body.decode()):
        assert client.get(address).status == 200, address
    script = client.get("/page/app.js")
    assert "javascript" in script.headers["content-type"]
    assert client.get("/page/app.js", If_None_Match=script.headers["etag"]).status == 304


def test_token_is_needed(guarded: Server) -> None:
    client = Client(guarded.url)
    assert client.get("/v1/models").status == 401
    assert client.get("/metrics").status == 401
    assert client.get("/").headers["www-authenticate"].startswith("Basic ")
    assert client.get("/healthz").status == 200
    for token in (TOKEN[:-1], TOKEN + "x", ""):
        assert client.get("/v1/models", Authorization=f"Bearer {token}").status == 401
    assert client.get("/v1/models", Authorization=f"Bearer {TOKEN}").status == 200
    assert client.get("/v1/models", Authorization=f"Bearer {TOKEN}", Host="any.example").status == 200


def test_browsers_send_the_token_as_a_password(guarded: Server) -> None:
    client = Client(guarded.url)

    def status(words: bytes) -> int:
        sent = base64.b64encode(words).decode()
        return client.get("/v1/models", Authorization=f"Basic {sent}").status

    assert status(f"anybody:{TOKEN}".encode()) == status(f":{TOKEN}".encode()) == 200
    for wrong in (TOKEN.encode(), f"{TOKEN}:".encode(), f"a:{TOKEN}x".encode(), b"a:", b"", b"\xff:"):
        assert status(wrong) == 401
    for broken in (f"Basic {TOKEN}", "Basic", "Basic =", f"Digest {TOKEN}", TOKEN):
        assert client.get("/v1/models", Authorization=broken).status == 401


def test_server_refuses_what_it_cannot_serve(runs_folder: Path, server: Server, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="a token is needed"):
        Server(runs_folder, host="0.0.0.0", port=0)
    with pytest.raises(ConfigError, match="at least 16"):
        Server(runs_folder, host="0.0.0.0", port=0, token="short")
    with pytest.raises(ConfigError, match="in use"):
        Server(runs_folder, port=server.port)
    with pytest.raises(CheckpointError, match="no checkpoint"):
        Server(tmp_path, port=0)
    with pytest.raises(CheckpointError, match="no folder"):
        Server(tmp_path / "nothing", port=0)


def test_notebook_may_frame_the_page(runs_folder: Path) -> None:
    server = notebook(runs_folder)
    try:
        assert f'src="{server.url}"' in server._repr_html_()
        policy = Client(server.url).get("/").headers["content-security-policy"]
        assert "frame-ancestors 'self' http://localhost:*" in policy
    finally:
        server.stop()
