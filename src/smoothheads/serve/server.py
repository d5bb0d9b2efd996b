"""Runs the server: in the foreground for the command line, in a thread for a notebook."""

from __future__ import annotations

import errno
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from html import escape
from pathlib import Path

from smoothheads.errors import CheckpointError, ConfigError, MissingExtraError

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})
SHORTEST_TOKEN = 16
PORT = 8000
BACKLOG = 128
"""Connections that the system holds until we accept them."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what one request may ask for, and on what all requests together may hold.

    Everything beyond these is refused with a status that says so.
    """

    n: int = 100_000
    """Samples per image."""
    seconds: float = 60.0
    """Work per request, once it has begun; the certificate that holds by then is given."""
    images: int = 32
    """Images per request."""
    pixels: int = 2**24
    """Width times height of an image, checked before it is decoded."""
    body: int = 4 * 2**20
    """Bytes of a request."""
    bodies: int = 64 * 2**20
    """Bytes of all requests that are being received or decoded."""
    parse_seconds: float = 5.0
    """Time in which an image or a JSON text must be decoded."""
    at_once: int = 16
    """Requests that share the network; they take turns, pass by pass."""
    queue: int = 24
    """Requests that wait; further ones are refused with 429."""
    patience: float = 20.0
    """Seconds within which a client must send its request, and take each part of the answer."""
    connections: int = 100
    """Connections per address; further ones are closed at once."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value, lowest = getattr(self, field.name), 0 if field.name == "queue" else 1e-9
            if not value >= lowest:
                raise ConfigError(f"The limit {field.name} is {value:g}: it must be above 0.")


class Server:
    """Serves one folder; `with Server(folder): ...` runs it in a thread.

    Args:
        folder: A checkpoint, an export, or a folder with any number of them and their ledgers.
        host: Address to listen at. Others than this machine's own need a token.
        port: Port to listen at; 0 takes any free one.
        token: Password that clients must send; None admits everybody who reaches the server.
        sigma: Standard deviation of the noise for checkpoints; None takes that of the training.
        alpha: Probability that a certificate is wrong; None takes 0.001, or that of the export.
        frame_ancestors: Pages that may show this one in a frame, in the words of Content-Security-Policy.

    Raises:
        ConfigError: For a host that others reach without a token, and for a port that is taken.
        CheckpointError: If the folder holds nothing to serve.
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
        try:
            import fastapi  # noqa: F401
            import prometheus_client  # noqa: F401
            import python_multipart  # noqa: F401
            import uvicorn
        except ImportError as error:
            raise MissingExtraError(error.name or "fastapi", "serve") from None

        from smoothheads.serve.app import application
        from smoothheads.serve.guard import Access, connection_class
        from smoothheads.serve.runs import Contents, RunIndex

        check_token(host, token)
        limits = limits or Limits()
        folder = Path(folder)
        if not folder.is_dir():
            raise CheckpointError(f"There is no folder {folder}: check the path.")
        # What cannot be served is refused now, and not when the first client comes.
        index = RunIndex(folder)
        contents = index.contents()
        if contents == Contents():
            raise CheckpointError(
                f"{folder} holds no checkpoint, export, ledger, study or training run: check the path; "
                "`train`, `certify`, `export` and `study` write them."
            )
        self.networks, self.ledgers = len(contents.networks), len(contents.ledgers)
        settings = {"sigma": sigma, "alpha": alpha, "threads": threads}
        access = Access(hosts=LOOPBACK | {host}, token=token, frame_ancestors=frame_ancestors)
        # The port is taken before the network is opened, so that a mistake shows at once.
        self._socket = _listen(host, port)
        self.host, self.port = host, self._socket.getsockname()[1]
        self._server = uvicorn.Server(
            uvicorn.Config(
                application(index, settings, access, limits),
                http=connection_class(limits),
                ws="none",
                log_level="warning",
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=3,
                backlog=BACKLOG,
            )
        )
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        host = {"0.0.0.0": "localhost", "::": "localhost"}.get(self.host, self.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"

    def run(self, on_start: Callable[[], None] | None = None) -> None:
        """Serves until Ctrl-C."""
        if on_start:
            on_start()
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def start(self) -> Server:
        """Serves in a thread, and returns when the server accepts requests."""
        self._thread = threading.Thread(target=self.run, name="smoothheads-server", daemon=True)
        self._thread.start()
        # Uvicorn sets `started` when it accepts connections; its thread may also end before.
        while not self._server.started and self._thread.is_alive():
            time.sleep(0.01)
        return self

    def stop(self) -> None:
        """Ends the server and waits for its thread."""
        self._server.should_exit = True
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def __enter__(self) -> Server:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _repr_html_(self) -> str:
        return (
            f'<iframe src="{escape(self.url)}" title="smoothheads" width="100%" height="720" '
            'style="border:1px solid #8884;border-radius:8px"></iframe>'
        )


def notebook(folder: Path | str, *, port: int = 0, limits: Limits | None = None) -> Server:
    """Starts a server whose page a notebook shows: make it the last line of a cell. `.stop()` ends it."""
    local = "http://localhost:* http://127.0.0.1:* https://localhost:* https://127.0.0.1:*"
    return Server(folder, port=port, limits=limits, frame_ancestors=f"'self' {local}").start()


def check_token(host: str, token: str | None) -> None:
    """Raises ConfigError where others could ask without a token, or where the token is easily guessed."""
    if token is None and host not in LOOPBACK:
        raise ConfigError(
            f"Others can reach {host}, so a token is needed: give --token, or set SMOOTHHEADS_TOKEN."
        )
    if token is not None and len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            f"The token has {len(token)} characters and needs at least {SHORTEST_TOKEN}, for example from: "
            "python -c 'import secrets; print(secrets.token_urlsafe())'."
        )


def _listen(host: str, port: int) -> socket.socket:
    if not 0 <= port < 2**16:
        raise ConfigError(f"The port is {port}: choose one from 0 to 65535; 8000 is usual.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        taken = "it is in use" if error.errno == errno.EADDRINUSE else error.strerror or str(error)
        raise ConfigError(
            f"Cannot listen at {host} port {port} ({taken}): choose another --host or --port."
        ) from None
