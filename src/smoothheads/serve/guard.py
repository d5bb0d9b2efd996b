"""Guards every request: decides who may ask, from where, how much and how slowly, and counts all that."""

from __future__ import annotations

import asyncio
import base64
import hmac
import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

import prometheus_client
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, HTTPConnection
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from smoothheads.serve.server import Limits

PAGE: Final = "/page"
"""Address of the page's files."""
OPEN: Final = ("/healthz", "/readyz")
"""Addresses that need no token."""
GONE: Final = 499
"""Status in the metrics for a client that closed its connection or took nothing."""

_log = logging.getLogger(__name__)


class Metrics:
    """Counters for Prometheus; labels are names of our own (routes, statuses), so their number is bounded."""

    def __init__(self) -> None:
        # A registry of its own for every server: a notebook may start several.
        self.registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=self.registry)
        own: dict[str, Any] = {"namespace": "smoothheads", "registry": self.registry}
        counter, histogram = prometheus_client.Counter, prometheus_client.Histogram
        self.requests = counter("requests", "Answered requests", ["route", "status"], **own)
        buckets = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0)
        self.seconds = histogram("request_seconds", "Time to the end of an answer", buckets=buckets, **own)
        self.samples = counter("samples", "Noisy samples classified", **own)
        self.images = counter("images", "Images answered", **own)

    def gauge(self, name: str, text: str) -> prometheus_client.Gauge:
        return prometheus_client.Gauge(name, text, namespace="smoothheads", registry=self.registry)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Decides who is answered.

    Without a token only requests to the names in `hosts` are answered, so that no page of another site that
    resolves to this machine gets through.
    """

    hosts: frozenset[str]
    token: str | None = None
    frame_ancestors: str = "'none'"

    def admits(self, request: HTTPConnection) -> bool:
        """Returns whether the request has the token, where one is needed."""
        if self.token is None:
            return True
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        # Programs send it as it is; browsers ask for a name, which does not matter, and a password.
        match kind.lower():
            case "bearer":
                given = text.strip()
            case "basic":
                try:
                    given = base64.b64decode(text).decode().partition(":")[2]
                except ValueError:
                    return False
            case _:
                return False
        # compare_digest takes the same time for every guess, so that nobody learns a token letter by letter.
        return hmac.compare_digest(given.encode(), self.token.encode())

    def is_own_name(self, host: str) -> bool:
        # Addresses of version 6 stand in brackets; the port does not count.
        name = host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
        return self.token is not None or name in self.hosts


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits, metrics: Metrics) -> None:
        self.app, self.access, self.limits, self.metrics = app, access, limits, metrics
        self.held = 0  # bytes of all request bodies under way
        gauge = metrics.gauge("body_bytes", "Bytes of all request bodies under way")
        gauge.set_function(lambda: self.held)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.monotonic(), None

        async def guarded_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                self._protect(MutableHeaders(scope=message), scope["path"])
            async with asyncio.timeout(self.limits.patience):
                await send(message)

        body = _Body(receive, self)
        scope["release_body"] = body.release  # for routes that need the body no longer than a moment
        try:
            refusal = self._refusal(scope)
            await (refusal or self.app)(scope, body, guarded_send)
        except (TimeoutError, ClientDisconnect):  # the connection is closed, and the work is cancelled
            status = GONE
        except Exception:
            _log.exception("a request failed")
            if status is None:
                failed = _error(500, "This is the server's own fault; its log says more.")
                await failed(scope, receive, guarded_send)
        finally:
            # Labels are routes, not addresses: an address of a client's making would be a new counter.
            body.release()
            route = getattr(scope.get("route"), "path", "other")
            self.metrics.requests.labels(route, status or 500).inc()
            self.metrics.seconds.observe(time.monotonic() - begun)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Returns the answer to a request that may not pass, or None."""
        request, path = HTTPConnection(scope), scope["path"]
        host = request.headers.get("host", "")
        if not self.access.is_own_name(host):
            return _error(403, "This server answers to its own name only: use the address that it printed.")
        # Equal as a whole, port included: a prefix of the host is another site.
        origin = request.headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return _error(403, "Only this server's own page may ask: other sites have no access.")
        if path not in OPEN and not self.access.admits(request):
            text = "A token is needed: send it as Authorization: Bearer TOKEN, or type it as the password."
            return _error(401, text, {"WWW-Authenticate": 'Basic realm="smoothheads", charset="UTF-8"'})
        length = request.headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()) or int(length[:20]) > self.limits.body:
            return _error(413, f"A request may have at most {self.limits.body:,} bytes: send less at once.")
        return None

    def _protect(self, headers: MutableHeaders, path: str) -> None:
        headers["Content-Security-Policy"] = (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
            "connect-src 'self'; form-action 'self'; base-uri 'none'; "
            f"frame-ancestors {self.access.frame_ancestors}"
        )
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "no-referrer"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        if path.startswith("/v1") and "cache-control" not in headers:
            headers["Cache-Control"] = "no-store"


class _Body:
    """The request as it arrives, within the limits of size and time."""

    def __init__(self, receive: Receive, guard: Guard) -> None:
        self._receive, self._guard = receive, guard
        self._size, self._complete = 0, False
        self._deadline = asyncio.get_running_loop().time() + guard.limits.patience

    async def __call__(self) -> Message:
        if self._complete:
            return await self._receive()
        try:
            # Not wait_for, which in Python 3.11 may swallow a cancellation.
            async with asyncio.timeout_at(self._deadline):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "the request took too long to arrive") from None
        limits = self._guard.limits
        # A body without Content-Length shows its size only as it arrives.
        count = len(message.get("body", b""))
        if self._size + count > limits.body:
            raise HTTPException(413, f"more than {limits.body:,} bytes")
        if self._guard.held + count > limits.bodies:
            raise HTTPException(429, "too many large requests under way", {"Retry-After": "1"})
        self._guard.held += count
        self._size += count
        self._complete = not message.get("more_body", False)
        return message

    def release(self) -> None:
        """Gives the bytes back, once nobody holds them any more."""
        self._guard.held -= self._size
        self._size = 0


def connection_class(limits: Limits) -> type[H11Protocol]:
    """Returns the class of uvicorn's connections, with a bound per address and a time limit for headers.

    Uvicorn itself waits for headers without end, so that a thousand silent connections would shut out
    everybody else.
    """
    open_per_address: Counter[str] = Counter()

    class Connection(H11Protocol):
        _headers_due: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            super().connection_made(transport)
            self._address = self.client[0] if self.client else ""
            open_per_address[self._address] += 1
            if open_per_address[self._address] > limits.connections:
                # Without an answer: whoever opens so many connections does not read it.
                transport.abort()
            else:
                self._expect_headers()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._expect_headers()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._expect_headers()

        def connection_lost(self, exc: Exception | None) -> None:
            open_per_address[self._address] -= 1
            if not open_per_address[self._address]:
                del open_per_address[self._address]
            if self._headers_due is not None:
                self._headers_due.cancel()
            super().connection_lost(exc)

        def _expect_headers(self) -> None:
            """Starts the timer when a request is awaited, and stops it when its headers are complete."""
            busy = self.cycle is not None and not self.cycle.response_complete
            if busy and self._headers_due is not None:
                self._headers_due.cancel()
                self._headers_due = None
            elif not busy and self._headers_due is None:
                self._headers_due = self.loop.call_later(limits.patience, self.transport.abort)

    return Connection


class QuietAccept:
    """Reports at most one failed `accept` in ten seconds: asyncio reports each, hundreds per second.

    With no file descriptor left, asyncio tries again after a second; that is our back-off.
    """

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if "socket.accept() out of system resource" not in str(context.get("message")):
            loop.default_exception_handler(context)
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + 10
            _log.warning("no new connections can be accepted for now: %s", context.get("exception"))


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return JSONResponse({"error": text}, status, headers)
