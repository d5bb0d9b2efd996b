"""Puts the application together: the API, the page, the addresses for machines, and the login."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Any, Final

import prometheus_client
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp

from smoothheads.errors import SmoothheadsError
from smoothheads.provenance import versions
from smoothheads.serve import api, runs
from smoothheads.serve.guard import COOKIE, GONE, LOGIN, Access, Guard, Metrics, QuietAccept
from smoothheads.serve.images import ResizableError
from smoothheads.serve.network import Networks, NetworkSettings
from smoothheads.serve.scheduler import Scheduler
from smoothheads.serve.server import Limits

KINDS: Final = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
ABOUT: Final = (
    "Image classification with a certified radius. With probability at least 1 - alpha no change of the "
    "image of norm below `radius` alters its answer."
)
_log = logging.getLogger(__name__)


def application(folder: Path, settings: NetworkSettings, access: Access, limits: Limits) -> ASGIApp:
    """Returns the ASGI application; its threads and processes end with its lifespan.

    Args:
        folder: The folder that is served.
        settings: How classifiers are opened.
        access: Who is answered.
        limits: Bounds on requests.
    """
    metrics, index = Metrics(), runs.RunIndex(folder)
    scheduler = Scheduler(at_once=limits.at_once, queue=limits.queue)
    networks = Networks(index.networks, settings)
    service = api.Service(networks, scheduler, limits, metrics, index.public)
    metrics.gauge("requests_active", "Requests that take turns").set_function(lambda: scheduler.jobs[0])
    metrics.gauge("requests_waiting", "Requests in the queue").set_function(lambda: scheduler.jobs[1])
    metrics.gauge("steps", "Passes made since the start").set_function(lambda: scheduler.steps)
    ready = asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(QuietAccept())
        # The first network is opened before anybody asks for it.
        warm = asyncio.ensure_future(_warm(scheduler, networks, ready))
        yield
        warm.cancel()
        service.workers.close()
        scheduler.close()

    app = FastAPI(
        title="smoothheads",
        version=versions()["smoothheads"],
        description=ABOUT,
        lifespan=lifespan,
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
    )
    app.include_router(api.routes(service))
    app.include_router(runs.routes(runs.Runs(index, service.test_images)))

    @app.get("/healthz", summary="Whether the server is alive", response_class=PlainTextResponse)
    async def healthz() -> str:
        return "ok\n"

    @app.get("/readyz", summary="Whether its first network is open", response_class=PlainTextResponse)
    async def readyz() -> Response:
        opened = ready.is_set()
        return PlainTextResponse("ready\n" if opened else "opening the network\n", 200 if opened else 503)

    @app.get("/metrics", summary="Counters for Prometheus", response_class=PlainTextResponse)
    def exposition() -> Response:
        text = prometheus_client.generate_latest(metrics.registry)
        return Response(text, media_type=prometheus_client.CONTENT_TYPE_LATEST)

    pages = {name: Response(data, media_type=kind) for name, (data, kind) in static_files().items()}

    async def page(_: Request, name: str) -> Response:
        return pages[name]

    for name in pages:
        app.add_route(name, partial(page, name=name), include_in_schema=False)
    app.add_route("/", partial(page, name="/index.html"), include_in_schema=False)

    @app.get(LOGIN, include_in_schema=False)
    async def login_page() -> Response:
        return pages["/login.html"]

    @app.post(LOGIN, include_in_schema=False)
    async def login(request: Request) -> Response:
        async with request.form(max_files=0, max_fields=3, max_part_size=2**12) as form:
            token = form.get("token")
        if not (isinstance(token, str) and access.is_token(token)):
            return RedirectResponse(f"{LOGIN}?wrong", 303)
        response = RedirectResponse("/", 303)
        response.set_cookie(COOKIE, access.session, httponly=True, samesite="strict", path="/")
        return response

    _handle_errors(app, index.public)
    if access.token is not None:
        _describe_token(app)
    return Guard(app, access, limits, metrics)


def static_files() -> Mapping[str, tuple[bytes, str]]:
    """Returns content and type of the page's files by address; a request names one of them or nothing."""
    files = [*resources.files("smoothheads.serve").joinpath("static").iterdir()]
    files.append(resources.files("smoothheads.report").joinpath("look.css"))
    return {f"/{file.name}": (file.read_bytes(), KINDS[Path(file.name).suffix]) for file in files}


async def _warm(scheduler: Scheduler, networks: Networks, ready: asyncio.Event) -> None:
    def first() -> Iterator[None]:
        try:
            if networks.names:
                networks.get(networks.default())
        except SmoothheadsError as error:
            _log.warning("%s", error)
        yield None

    async for _ in scheduler.submit(first(), seconds=float("inf")):
        ready.set()


def _handle_errors(app: FastAPI, public: Callable[[str], str]) -> None:
    """Makes every error a JSON object with one sentence."""

    async def refused(_: Request, error: Exception) -> Response:
        more = {"resize": True} if isinstance(error, ResizableError) else {}
        return JSONResponse({"error": public(str(error)), **more}, 422)

    async def invalid(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]  # a mistake in the query
        why = str(first["msg"]).removesuffix(".")
        return JSONResponse({"error": f"The parameter {first['loc'][-1]}: {why[:1].lower()}{why[1:]}."}, 422)

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return JSONResponse({"error": error.detail}, error.status_code, error.headers)

    async def gone(_: Request, error: Exception) -> Response:  # noqa: ARG001
        return Response(status_code=GONE)

    async def failed(_: Request, error: Exception) -> Response:  # noqa: ARG001
        return JSONResponse({"error": "This is the server's own fault; its log says more."}, 500)

    for kind, handler in {
        SmoothheadsError: refused,
        RequestValidationError: invalid,
        HTTPException: http,
        api.GoneError: gone,
        Exception: failed,
    }.items():
        app.add_exception_handler(kind, handler)


def _describe_token(app: FastAPI) -> None:
    """Adds the token to the OpenAPI description."""
    plain = app.openapi

    def described() -> dict[str, Any]:
        schema = plain()
        components = schema.setdefault("components", {})
        components["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        schema["security"] = [{"token": []}]
        return schema

    app.openapi = described  # type: ignore[method-assign]
