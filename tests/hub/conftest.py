"""A stand-in for the Hub: a real HTTP server that the real library talks to."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

Files = dict[str, bytes]


@dataclass
class Hub:
    """Repositories by `models/user/name`: commits in order, and branches."""

    url: str = ""
    repositories: dict[str, dict[str, Files]] = field(default_factory=dict)
    refs: dict[str, dict[str, str]] = field(default_factory=dict)
    truncate: str | None = None
    """A file of which only the first half is sent."""
    requests: list[str] = field(default_factory=list)

    def create(self, repo: str) -> None:
        self.repositories.setdefault(repo, {})
        self.refs.setdefault(repo, {})
        if not self.repositories[repo]:
            self.commit(repo, "main", {".gitattributes": b""})

    def commit(self, repo: str, branch: str, files: Files) -> str:
        before = self.repositories.get(repo, {}).get(self.refs.get(repo, {}).get(branch, ""), {})
        now = before | files
        digest = hashlib.sha1(repr(sorted(now.items())).encode()).hexdigest()
        self.repositories.setdefault(repo, {})[digest] = now
        self.refs.setdefault(repo, {})[branch] = digest
        return digest

    def find(self, repo: str, revision: str) -> str | None:
        digest = self.refs.get(repo, {}).get(revision, revision)
        return digest if digest in self.repositories.get(repo, {}) else None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        path = unquote(urlsplit(self.path).path)
        if found := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/revision/(.+)", path):
            self._revision(f"{found[1]}/{found[2]}", found[3])
        elif found := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/tree/([^/]+)/?", path):
            self._tree(f"{found[1]}/{found[2]}", found[3])
        elif found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(f"{'datasets' if found[1] else 'models'}/{found[2]}", found[3], found[4])
        else:
            self._json(404, {"error": "not here"})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self.hub.requests.append(f"{self.command} {self.path}")
        body = self._body()
        path = unquote(urlsplit(self.path).path)
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked.get('organization') or 'user'}/{asked['name']}"
            self.hub.create(f"models/{name}")
            self._json(200, {"url": f"{self.hub.url}/{name}", "name": name, "id": name})
        elif path == "/api/validate-yaml":
            self._json(200, {"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/branch/(.+)", path):
            repo = f"models/{found[1]}"
            self.hub.refs[repo].setdefault(found[2], self.hub.refs[repo]["main"])
            self._json(200, {})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/preupload/(.+)", path):
            files = [
                {"path": file["path"], "uploadMode": "regular", "shouldIgnore": False}
                for file in json.loads(body)["files"]
            ]
            self._json(200, {"files": files})
        elif found := re.fullmatch(r"/api/models/([^/]+/[^/]+)/commit/(.+)", path):
            lines = [json.loads(line) for line in body.splitlines()]
            added = {
                line["value"]["path"]: base64.b64decode(line["value"]["content"])
                for line in lines
                if line["key"] == "file"
            }
            digest = self.hub.commit(f"models/{found[1]}", found[2], added)
            address = f"{self.hub.url}/{found[1]}/commit/{digest}"
            self._json(200, {"commitUrl": address, "commitOid": digest, "success": True})
        else:
            self._json(404, {"error": "not here"})

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _revision(self, repo: str, revision: str) -> None:
        digest = self.hub.find(repo, revision)
        if repo not in self.hub.repositories:
            self._json(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        elif digest is None:
            self._json(404, {"error": "Invalid rev id"}, {"X-Error-Code": "RevisionNotFound"})
        else:
            name = repo.partition("/")[2]
            files = [{"rfilename": path} for path in self.hub.repositories[repo][digest]]
            self._json(200, {"id": name, "modelId": name, "sha": digest, "siblings": files})

    def _tree(self, repo: str, digest: str) -> None:
        tree = [
            {"type": "file", "path": path, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for path, data in self.hub.repositories[repo][digest].items()
        ]
        self._json(200, tree)

    def _file(self, repo: str, revision: str, path: str) -> None:
        digest = self.hub.find(repo, revision) or ""
        data = self.hub.repositories.get(repo, {}).get(digest, {}).get(path)
        if data is None:
            self._json(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound"})
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("ETag", f'"{hashlib.sha1(data).hexdigest()}"')
        self.send_header("X-Repo-Commit", digest)
        self.end_headers()
        if self.command == "GET":
            torn = path == self.hub.truncate
            self.wfile.write(data[: len(data) // 2] if torn else data)
            self.close_connection = torn

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """The library asks this server, keeps its copies in a folder of the test, and has a token."""
    library = pytest.importorskip("huggingface_hub.constants", reason="the extra hub is not installed")
    stand_in = Hub()
    handler = type("Handler", (Handler,), {"hub": stand_in})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    stand_in.url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setattr(library, "ENDPOINT", stand_in.url)
    monkeypatch.setattr(
        library, "HUGGINGFACE_CO_URL_TEMPLATE", stand_in.url + "/{repo_id}/resolve/{revision}/{filename}"
    )
    monkeypatch.setattr(library, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(library, "HF_HUB_DISABLE_XET", True)
    monkeypatch.setenv("HF_TOKEN", "hf_test")
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield stand_in
    server.shutdown()
    server.server_close()
    thread.join()
