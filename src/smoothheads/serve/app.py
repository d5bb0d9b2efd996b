"""Puts the application together: the API, the page, and the addresses for machines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib import resources
from pathlib import Path
from typing import Any, Final

import prometheus_client
from fastapi import Depends, FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.security import HTTPBearer
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from smoothheads.errors import SmoothheadsError
from smoothheads.provenance import versions
from smoothheads.serve import api, runs, schemas
from smoothheads.serve.guard import GONE, PAGE, Access, Guard, Metrics, QuietAccept
from smoothheads.serve.images import ResizableError
from smoothheads.serve.network import Networks
from smoothheads.serve.scheduler import Scheduler
from smoothheads.serve.server import Limits

STATIC: Final = Path(__file__).parent / "static"
ABOUT: Final = (
    "Image classification with a certified radius. With probability at least 1 - alpha no change of the "
    "image of norm below `radius` alters its answer."
)
_log = logging.getLogger(__name__)


def application(index: runs.RunIndex, settings: Mapping[str, Any], access: Access, limits: Limits) -> ASGIApp:
    """Returns the ASGI application; its threads and processes end with its lifespan.

    Args:
        settings: How classifiers are opened: sigma, alpha and threads.
    """
    metrics = Metrics()
    networks = Networks(index.networks, n=limits.n, **settings)
    service = api.Service(networks, limits, metrics, index.public)
    scheduler = service.scheduler
    metrics.gauge("requests_active", "Requests that take turns").set_function(lambda: len(scheduler.active))
    metrics.gauge("requests_waiting", "Requests in the queue").set_function(lambda: len(scheduler.waiting))
    metrics.gauge("steps", "Passes made since the start").set_function(lambda: scheduler.steps)
    ready = asyncio.Event()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_exception_handler(QuietAccept())
        # The first network is opened before anybody asks for it.
        warm = asyncio.ensure_future(_warm(scheduler, networks, ready))
        yield
        warm.cancel()
        scheduler.close()

    # The guard checks the token; this only describes it.
    bearer = Depends(HTTPBearer(scheme_name="token", auto_error=False))
    described = [] if access.token is None else [bearer]
    app = FastAPI(
        title="smoothheads",
        version=versions()["smoothheads"],
        description=ABOUT,
        lifespan=lifespan,
        dependencies=described,
        docs_url=None,  # these pages would load scripts from elsewhere
        redoc_url=None,
    )
    app.include_router(api.routes(service))
    app.include_router(runs.routes(index, service.test_images))

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

    app.mount(PAGE, StaticFiles(directory=STATIC))
    look = resources.files("smoothheads.report").joinpath("look.css")

    @app.get("/", include_in_schema=False)
    async def page() -> Response:
        return FileResponse(STATIC / "index.html")

    @app.get("/look.css", include_in_schema=False)
    async def look_css() -> Response:
        return FileResponse(str(look))

    _handle_errors(app, index.public)
    return Guard(app, access, limits, metrics)


async def _warm(scheduler: Scheduler, networks: Networks, ready: asyncio.Event) -> None:
    def first() -> Iterator[None]:
        try:
            if (name := networks.listing()["default"]) is not None:
                networks.get(name)
        except SmoothheadsError as error:
            _log.warning("%s", error)
        yield None

    async for _ in scheduler.submit(first(), seconds=float("inf")):
        ready.set()


def _handle_errors(app: FastAPI, public: Callable[[str], str]) -> None:
    """Makes every error a JSON object with one sentence."""

    async def answer(_: Request, error: Exception) -> Response:
        match error:
            case SmoothheadsError():
                more = {"resize": True} if isinstance(error, ResizableError) else {}
                return JSONResponse({"error": public(str(error)), **more}, 422)
            case RequestValidationError():
                text = schemas.sentence(error.errors()[0], "parameter")  # a mistake in the query
                return JSONResponse({"error": text}, 422)
            case HTTPException():
                return JSONResponse({"error": error.detail}, error.status_code, error.headers)
            case api.GoneError():
                return Response(status_code=GONE)
        return JSONResponse({"error": "This is the server's own fault; its log says more."}, 500)

    for kind in (SmoothheadsError, RequestValidationError, HTTPException, api.GoneError, Exception):
        app.add_exception_handler(kind, answer)
