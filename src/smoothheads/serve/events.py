"""Server-sent events, and answers that end with their client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable
from contextlib import suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")


class GoneError(Exception):
    """The client closed its connection."""


def event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n".encode()


class Events(Response):
    """Sends what `source` yields; when the client leaves, `source` is closed at once."""

    media_type = "text/event-stream"

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        super().__init__(None, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self.source = source

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        with suppress(GoneError):
            await unless_gone(receive, self._send(send))

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for chunk in self.source:
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        finally:
            with suppress(RuntimeError):
                await self.source.aclose()  # type: ignore[attr-defined]
        await send({"type": "http.response.body", "body": b""})


async def unless_gone(receive: Receive, answer: Awaitable[T]) -> T:
    """The answer; raises GoneError, and drops what was computed, when the client leaves before."""
    working = asyncio.ensure_future(answer)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise GoneError
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
