"""Runs the server: in the foreground for the command line, in a thread for a notebook."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from html import escape
from pathlib import Path
from types import TracebackType

from smoothheads.errors import CheckpointError, ConfigError, MissingExtraError
from smoothheads.serve.limits import Limits

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
SHORTEST_TOKEN = 16
PORT = 8000


class Server:
    """A server of one folder; `with Server(folder): ...` runs it in a thread.

    Raises ConfigError for a host that others reach without a token, and where the port is taken (0: any).
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        host: str = "127.0.0.1",
        port: int = PORT,
        token: str | None = None,
        limits: Limits | None = None,
        sigma: float | None = None,
        alpha: float | None = None,
        threads: int = 1,
        frame_ancestors: str = "'none'",
    ) -> None:
        _require_extra()
        import uvicorn

        from smoothheads.serve.app import application
        from smoothheads.serve.catalogue import Catalogue
        from smoothheads.serve.guard import Access
        from smoothheads.serve.network import Settings

        _check_token(host, token)
        limits = Limits() if limits is None else limits
        if not Path(folder).is_dir():
            raise CheckpointError(f"a folder at {folder}", "none", "check the path")
        contents = Catalogue(Path(folder)).contents()
        if not (contents.networks or contents.ledgers or contents.trainings):
            raise CheckpointError(
                f"a checkpoint, an export or a folder of runs at {folder}",
                "none",
                "check the path; `train`, `certify` and `export` write them",
            )
        self.networks, self.ledgers = len(contents.networks), len(contents.ledgers)
        settings = Settings(sigma=sigma, alpha=alpha, n=limits.n, threads=threads)
        access = Access(hosts=LOOPBACK | {host}, token=token, frame_ancestors=frame_ancestors)
        app = application(Path(folder), settings, access, limits)
        self._socket = _listen(host, port)
        self.host, self.port = host, self._socket.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=3,
                limit_concurrency=1000,
            )
        )
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        host = {"0.0.0.0": "localhost", "::": "localhost"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def run(self, on_start: Callable[[], None] | None = None) -> None:
        """Until Ctrl-C."""
        if on_start:
            on_start()
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def start(self) -> Server:
        """In a thread; returns when it answers."""
        self._thread = threading.Thread(target=self.run, name="smoothheads-server", daemon=True)
        self._thread.start()
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{escape(self.url)}" title="smoothheads" width="100%" height="720" '
            'style="border:1px solid #8884;border-radius:8px"></iframe>'
        )


def notebook(folder: Path | str, *, port: int = 0, limits: Limits | None = None) -> Server:
    """The page inside a notebook: the last line of a cell shows it. `.stop()` ends it."""
    local = "http://localhost:* http://127.0.0.1:* https://localhost:* https://127.0.0.1:*"
    return Server(folder, port=port, limits=limits, frame_ancestors=f"'self' {local}").start()


def _require_extra() -> None:
    try:
        import python_multipart  # noqa: F401
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(error.name or "starlette", "serve") from None


def _check_token(host: str, token: str | None) -> None:
    if token is None and host not in LOOPBACK:
        raise ConfigError(
            f"a token, because others reach {host}",
            "none",
            "give --token, or set SMOOTHHEADS_TOKEN; without one only this machine is served",
        )
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"a token of at least {SHORTEST_TOKEN} characters",
            f"one of {len(token)}",
            "for example from: python -c 'import secrets; print(secrets.token_urlsafe())'",
        )


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port < 2**16:
        raise ConfigError("a port from 0 to 65535", str(port), "8000 is usual")
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=256
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} for this server", "one that is in use", "choose another --port"
            ) from None
        got = error.strerror or str(error)
        raise ConfigError(
            f"to listen at {host} port {port}", got, "choose another --host or --port"
        ) from None
