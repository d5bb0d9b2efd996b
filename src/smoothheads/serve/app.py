"""The routes, and what of the page is served."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from smoothheads.errors import SmoothheadsError
from smoothheads.serve.api import Api
from smoothheads.serve.catalogue import Catalogue
from smoothheads.serve.events import GoneError
from smoothheads.serve.guard import COOKIE, LOGIN, Access, Guard
from smoothheads.serve.limits import Limits
from smoothheads.serve.metrics import Metrics
from smoothheads.serve.network import Settings
from smoothheads.serve.openapi import Endpoint, description
from smoothheads.serve.pictures import Pictures
from smoothheads.serve.runs import Runs
from smoothheads.serve.scheduler import Scheduler
from smoothheads.serve.work import Networks

KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_log = logging.getLogger(__name__)


def application(folder: Path, settings: Settings, access: Access, limits: Limits) -> ASGIApp:
    """An ASGI application; its thread of work ends with its lifespan."""
    metrics, catalogue = Metrics(), Catalogue(folder)
    scheduler = Scheduler(at_once=limits.at_once, queue=limits.queue)
    networks = Networks(catalogue.networks, settings)
    pictures = Pictures()
    api = Api(networks, scheduler, limits, metrics, pictures, catalogue.public)
    runs = Runs(catalogue, pictures)
    metrics.gauges = {
        "requests_active": ("Requests that take turns", lambda: scheduler.under_way[0]),
        "requests_waiting": ("Requests in the queue", lambda: scheduler.under_way[1]),
        "steps": ("Passes made since the start", lambda: scheduler.steps),
        "resident_bytes": ("Memory of the process", _resident),
    }
    state = {"ready": not networks.names}

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        if not state["ready"]:
            scheduler.submit(_warm(networks, state), seconds=float("inf"))
        yield
        scheduler.close()

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        ready = state["ready"]
        return PlainTextResponse("ready\n" if ready else "opening the network\n", 200 if ready else 503)

    async def measured(_: Request) -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    async def described(_: Request) -> Response:
        return JSONResponse(description(endpoints, limits, token=access.token is not None))

    async def login(request: Request) -> Response:
        if request.method == "GET":
            return pages["/login.html"]
        async with request.form(max_files=0, max_fields=3) as form:
            token = form.get("token")
        if not (isinstance(token, str) and access.is_token(token)):
            return RedirectResponse(f"{LOGIN}?wrong", 303)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, access.session, httponly=True, samesite="strict", path="/")
        return answer

    pages = {name: Response(data, media_type=kind) for name, (data, kind) in _static().items()}
    endpoints = [
        *api.endpoints(),
        *runs.endpoints(),
        Endpoint("/healthz", healthz, "Whether the server is alive"),
        Endpoint("/readyz", readyz, "Whether its network is open"),
        Endpoint("/metrics", measured, "Counters for Prometheus"),
        Endpoint("/openapi.json", described, "This description"),
    ]
    routes = [
        *(Route(name, partial(_page, page)) for name, page in pages.items()),
        Route("/", partial(_page, pages["/index.html"])),
        Route(LOGIN, login, methods=["GET", "POST"]),
        *(endpoint.route for endpoint in endpoints),
    ]
    handlers = {
        SmoothheadsError: partial(_refused, catalogue),
        HTTPException: _http,
        GoneError: _gone,
        Exception: _failed,
    }
    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers=handlers)  # type: ignore[arg-type]
    return Guard(app, access, limits, metrics)


def _static() -> Mapping[str, tuple[bytes, str]]:
    """The page's files by their addresses, read once: a request names one of them or nothing."""
    files = [*resources.files("smoothheads.serve").joinpath("static").iterdir()]
    files.append(resources.files("smoothheads.report").joinpath("look.css"))
    return {f"/{file.name}": (file.read_bytes(), KINDS[Path(file.name).suffix]) for file in files}


async def _page(page: Response, _: Request) -> Response:
    return page


def _warm(networks: Networks, state: dict[str, bool]) -> Iterator[None]:
    """Opens the first network before anybody asks."""
    try:
        networks.get(None)
    except SmoothheadsError as error:
        _log.warning("%s", error)
    state["ready"] = True
    yield None


async def _refused(catalogue: Catalogue, _: Request, error: SmoothheadsError) -> Response:
    return JSONResponse({"error": catalogue.public(str(error))}, 422)


async def _http(_: Request, error: HTTPException) -> Response:
    return JSONResponse({"error": error.detail}, error.status_code, error.headers)


async def _failed(_: Request, error: Exception) -> Response:  # noqa: ARG001
    """Our own fault: the log has it, the client only that it is one."""
    return JSONResponse({"error": "the server failed; its log says why"}, 500)


async def _gone(_: Request, error: GoneError) -> Response:  # noqa: ARG001
    return Response(status_code=499)


def _resident() -> float:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return 0.0
    import resource

    return float(pages * resource.getpagesize())
