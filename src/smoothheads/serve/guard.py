"""What every request passes: who may ask, from where and how much, and what a browser may do with it."""

from __future__ import annotations

import asyncio
import hmac
import logging
import time
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse, RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smoothheads.serve.limits import Limits
from smoothheads.serve.metrics import Metrics

LOGIN: Final = "/login"
OPEN: Final = (LOGIN, "/healthz", "/readyz", "/look.css", "/app.css", "/login.js")
"""What needs no token."""
COOKIE: Final = "smoothheads"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Access:
    """Without a token only the names in `hosts` are answered, so that no page of another site that resolves
    to this machine gets through."""

    hosts: frozenset[str]
    token: str | None = None
    frame_ancestors: str = "'none'"
    session: str = field(default_factory=token_hex)
    """What the cookie holds: it is worth nothing on another server."""

    def is_token(self, text: str) -> bool:
        return self.token is not None and hmac.compare_digest(text.encode(), self.token.encode())

    def admits(self, request: HTTPConnection) -> bool:
        if self.token is None:
            return True
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return self.is_token(text.strip())
        return hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), self.session.encode())

    def knows(self, host: str) -> bool:
        return self.token is not None or _name(host) in self.hosts

    def policy(self) -> str:
        return (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
            "connect-src 'self'; form-action 'self'; base-uri 'none'; "
            f"frame-ancestors {self.frame_ancestors}"
        )


class Guard:
    """ASGI middleware."""

    def __init__(self, app: ASGIApp, access: Access, limits: Limits, metrics: Metrics) -> None:
        self.app, self.access, self.limits, self.metrics = app, access, limits, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        begun, status = time.monotonic(), None

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = int(message["status"])
                self._protect(MutableHeaders(scope=message), scope["path"])
            await asyncio.wait_for(send(message), self.limits.patience)

        try:
            refusal = self._refused(scope)
            if refusal is not None:
                await refusal(scope, receive, sending)
            else:
                await self.app(scope, _Body(receive, self.limits), sending)
        except TimeoutError:  # a client that takes nothing: the connection is closed, its work is cancelled
            status = 499
        except Exception:
            _log.exception("a request failed")
            if status is None:
                await _error(500, "the server's own fault", "look into its log")(scope, receive, sending)
        finally:
            route = scope.get("route")
            name = getattr(route, "path", "other")
            self.metrics.request(name, status or 500, time.monotonic() - begun)

    def _refused(self, scope: Scope) -> ASGIApp | None:
        request, path = HTTPConnection(scope), scope["path"]
        headers = request.headers
        host = headers.get("host", "")
        if not self.access.knows(host):
            return _error(403, "a request to this server's own name", "use the address that it printed")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return _error(403, "a request from this server's own page", "other sites have no access")
        if path not in OPEN and not self.access.admits(request):
            if path == "/":
                return RedirectResponse(LOGIN, 303)
            return _error(401, "the token", "send it as Authorization: Bearer TOKEN", bearer=True)
        length = headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.limits.body:
            return _error(413, f"at most {self.limits.body:,} bytes", "send less at once")
        return None

    def _protect(self, headers: MutableHeaders, path: str) -> None:
        headers["Content-Security-Policy"] = self.access.policy()
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "no-referrer"
        headers["Cross-Origin-Resource-Policy"] = "same-origin"
        headers["Cross-Origin-Opener-Policy"] = "same-origin"
        if path.startswith("/v1") and "cache-control" not in headers:
            headers["Cache-Control"] = "no-store"


class _Body:
    """The request as it arrives, within the limits of size and time."""

    def __init__(self, receive: Receive, limits: Limits) -> None:
        self._receive, self._limits = receive, limits
        self._left, self._whole = limits.body, False
        self._deadline = time.monotonic() + limits.patience

    async def __call__(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.0, self._deadline - time.monotonic()))
        except TimeoutError:
            raise HTTPException(408, "the request took too long to arrive") from None
        self._left -= len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._left < 0:
            raise HTTPException(413, f"more than {self._limits.body:,} bytes")
        return message


def _error(status: int, expected: str, remedy: str, *, bearer: bool = False) -> JSONResponse:
    headers = {"WWW-Authenticate": "Bearer"} if bearer else None
    return JSONResponse({"error": f"expected {expected}; {remedy}"}, status, headers)


def _name(host: str) -> str:
    """Without the port; addresses of version 6 stand in brackets."""
    return host.partition("]")[0].removeprefix("[") if host.startswith("[") else host.partition(":")[0]
