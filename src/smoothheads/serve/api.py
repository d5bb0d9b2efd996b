"""`/v1`: certify, predict and attack images, as one answer or as events while the votes arrive."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Query
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from smoothheads.data import DataInfo
from smoothheads.errors import ConfigError, SmoothheadsError
from smoothheads.serve import images, schemas
from smoothheads.serve.guard import Metrics
from smoothheads.serve.network import Event, Networks, Task, load_images
from smoothheads.serve.scheduler import OutOfTimeError, RequestJob, Scheduler
from smoothheads.serve.schemas import ImageRequest
from smoothheads.serve.server import Limits
from smoothheads.serve.worker import Workers
from smoothheads.types import Pixels

T = TypeVar("T")
PULSE: Final = 0.1
"""Seconds between two events: nobody reads faster."""
SAMPLES: Final = 20
SMALL_JSON: Final = 2**16
"""Bytes of JSON that are parsed in this process."""
SMALL_REQUEST: Final = 1000
"""Samples of a request that goes before larger ones."""
WORKERS: Final = 2
"""Processes that decode and parse."""
ANSWER_FACTS: Final = ("sigma", "alpha", "norm", "aggregation", "scope", "notes")
ERRORS: Final[dict[int | str, dict[str, Any]]] = {
    401: {"model": schemas.Error, "description": "The token is missing."},
    408: {"model": schemas.Error, "description": "The request arrived too slowly."},
    413: {"model": schemas.Error, "description": "The request is too large."},
    422: {"model": schemas.Error, "description": "There is a mistake in the request."},
    429: {"model": schemas.Error, "description": "Too many requests are under way; try again."},
}
EVENT_STREAM: Final = {
    "text/event-stream": {
        "schema": {"type": "string", "description": "waiting, start, moment or answer or frame, end, error"}
    }
}
Model = Annotated[str | None, Query(description="One of /v1/models; the first one if omitted.")]
Index = Annotated[int, Query(ge=0, le=10**12, description="Position of the image in its data set.")]


class GoneError(Exception):
    """Raised when the client has closed its connection."""


class Service:
    """Holds what the routes share.

    Args:
        public: Removes from a message what may not leave the machine.
    """

    def __init__(
        self, networks: Networks, limits: Limits, metrics: Metrics, public: Callable[[str], str]
    ) -> None:
        self.networks, self.limits, self.metrics, self.public = networks, limits, metrics, public
        self.scheduler = Scheduler(at_once=limits.at_once, queue=limits.queue)
        self.workers = Workers(WORKERS, limits.parse_seconds)
        self.test_images = images.cached(load_images)

    async def facts(self, model: str | None) -> tuple[DataInfo, dict[str, Any]]:
        """Returns image size and facts of a network; opening one is work like any other."""
        known = self.networks.facts(model)
        if known is not None:
            return known
        job = self.scheduler.submit(self.networks.opened(model), seconds=self.limits.seconds)
        try:
            async for known in job:
                return known
            raise GoneError  # cancelled, because the server is closing
        finally:
            job.cancel()

    async def read(self, request: HttpRequest) -> ImageRequest:
        """Reads a request in JSON or as a form; raises ConfigError or DataError for anything else."""
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind == "application/json":
            body = await request.body()
            # Parsing a megabyte holds the interpreter's lock for a tenth of a second.
            run = run_in_threadpool if len(body) <= SMALL_JSON else self.workers.run
            return await run(schemas.parse, body, (), self.limits)
        if kind != "multipart/form-data":
            shown = repr(kind[:80]) if kind else "missing"
            raise ConfigError(f"The Content-Type is {shown}: send application/json or multipart/form-data.")
        # One file more than allowed, so that the message counts images instead of parts of a form.
        files, fields = self.limits.images + 1, len(ImageRequest.model_fields)
        async with request.form(max_files=files, max_fields=fields, max_part_size=2**16) as form:
            values = {key: value for key, value in form.items() if isinstance(value, str)}
            uploads = [value for key, value in form.multi_items() if isinstance(value, UploadFile)]
            data = [await upload.read() for upload in uploads]
        return await run_in_threadpool(schemas.parse, values, data, self.limits)

    async def decode(self, request: ImageRequest, info: DataInfo) -> list[Pixels]:
        """Returns the images of a request as grid integers; large files are decoded in a worker."""
        pixels = []
        for i, source in enumerate(request.sources, 1):
            # Messages count from 1, as people do.
            name = f"image {i}"
            if isinstance(source, bytes):
                run = run_in_threadpool if images.is_small(source) else self.workers.run
                limit, resize = self.limits.pixels, request.resize
                pixels.append(await run(images.decode, source, info, name, limit, resize))
            else:
                pixels.append(await run_in_threadpool(images.from_numbers, source, info, name))
        return pixels

    async def start(
        self, http: HttpRequest, request: ImageRequest, task: Task
    ) -> tuple[RequestJob[Event], dict[str, Any]]:
        """Decodes the images and hands the work to the scheduler; also returns the facts of the network."""
        small = request.n is not None and request.n * len(request.sources) <= SMALL_REQUEST
        self.scheduler.require_place(small)  # decoding would be in vain
        info, facts = await self.facts(request.model)
        pixels = await self.decode(request, info)
        # The images are decoded, so that the bytes of the request need not be held any longer.
        http.scope["release_body"]()

        def steps() -> Iterator[Event]:
            for event in self.networks.work(task, request.model, pixels, request.n, request.radius):
                self.metrics.samples.inc(event.samples)
                self.metrics.images.inc(event.kind == "start")
                yield event

        seconds = request.seconds or self.limits.seconds
        return self.scheduler.submit(steps(), seconds=seconds, small=small), facts


def routes(service: Service) -> APIRouter:
    """Returns the routes below /v1 but for the runs."""
    router = APIRouter(prefix="/v1", responses=ERRORS)
    networks, limits = service.networks, service.limits
    # A form has the same fields as the JSON, with files as `image`.
    form = {"image": {"type": "array", "items": {"type": "string", "format": "binary"}}}
    schema = ImageRequest.model_json_schema()
    form |= {name: each for name, each in schema["properties"].items() if "image" not in name}
    body = {
        "requestBody": {
            "content": {
                "application/json": {"schema": schema},
                "multipart/form-data": {"schema": {"type": "object", "properties": form}},
            }
        }
    }
    about = (
        f"At most {limits.images} images, {limits.n:,} samples per image and {limits.seconds:g} seconds. "
        "With Accept: text/event-stream (one image) events come while the votes arrive; closing the "
        "connection stops the work."
    )
    post: dict[str, Any] = {"description": about, "openapi_extra": body}
    post |= {"responses": {200: {"content": EVENT_STREAM}}}

    async def answer(http: HttpRequest, task: Task) -> Any:
        if task == "attack" or "text/event-stream" in http.headers.get("accept", ""):
            return await stream(service, http, task)
        return await all_answers(service, http, task)

    @router.post(
        "/certify", summary="Class and certified radius of images", response_model=schemas.Certified, **post
    )
    async def certify(http: HttpRequest) -> Any:
        return await answer(http, "certify")

    @router.post(
        "/predict", summary="Class of images, or an abstention", response_model=schemas.Predicted, **post
    )
    async def predict(http: HttpRequest) -> Any:
        return await answer(http, "predict")

    @router.post(
        "/attack",
        summary="An image pushed away from its class",
        response_class=EventStream,
        status_code=200,  # FastAPI would look for it in the signature of EventStream
        **post,
    )
    async def attack(http: HttpRequest) -> Any:
        return await answer(http, "attack")

    @router.get("/models", summary="The classifiers that are served, and the limits")
    def models() -> dict[str, Any]:
        bounds = {"n": limits.n, "seconds": limits.seconds, "images": limits.images}
        return networks.listing() | {"limits": bounds}

    @router.get("/model", summary="One of them: classes, image size, sigma, alpha")
    async def model(http: HttpRequest, model: Model = None) -> dict[str, Any]:
        return (await unless_gone(http.receive, service.facts(model)))[1]

    @router.get("/samples", summary="Test images to try, if the data set is on this machine")
    def samples(model: Model = None) -> dict[str, Any]:
        try:
            dataset = service.test_images(networks.folder(model))
            return {"samples": images.samples(dataset, SAMPLES)}
        except SmoothheadsError as error:
            return {"samples": [], "reason": service.public(str(error))}

    @router.get("/sample", summary="One of them as PNG", response_class=PngResponse)
    def sample(index: Index, model: Model = None) -> Response:
        dataset = service.test_images(networks.folder(model))
        picture = images.picture(dataset, index)
        if picture is None:
            raise HTTPException(404, "no such image")
        return PngResponse(picture)

    return router


class PngResponse(Response):
    media_type = "image/png"


async def all_answers(service: Service, http: HttpRequest, task: Task) -> JSONResponse:
    """Returns what there is to say of every image at the end, or when the time is over."""
    request = await service.read(http)
    answers: list[dict[str, Any]] = [{"error": "not reached in time"} for _ in request.sources]

    async def work() -> dict[str, Any]:
        job, facts = await service.start(http, request, task)
        try:
            # Every moment holds at once, so that the last one of an image is its answer.
            async for event in job:
                if event.kind in ("moment", "answer"):
                    answers[event.image] = event.data
        except OutOfTimeError:
            pass  # what is certified by then is given
        finally:
            job.cancel()
        return facts

    facts = await unless_gone(http.receive, work())
    return JSONResponse({"answers": answers, **{name: facts[name] for name in ANSWER_FACTS}})


async def stream(service: Service, http: HttpRequest, task: Task) -> Response:
    """Returns the events of one image as they come."""
    request = await service.read(http)
    if len(request.sources) != 1:
        raise HTTPException(422, f"events are for one image, and the request has {len(request.sources)}")
    job, facts = await unless_gone(http.receive, service.start(http, request, task))
    return EventStream(job, facts, request.radius, service.public)


class EventStream(StreamingResponse):
    """Sends the events of a job; when the client leaves, the job is cancelled at once."""

    media_type = "text/event-stream"

    def __init__(
        self,
        job: RequestJob[Event],
        facts: dict[str, Any],
        radius: float | None,
        public: Callable[[str], str],
    ) -> None:
        super().__init__(self._text(), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self.job, self.facts, self.radius, self.public = job, facts, radius, public

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Here and not in the generators below: one that was never started does not run its `finally`.
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.job.cancel()

    async def _text(self) -> AsyncIterator[str]:
        async for name, data in self._events():
            yield f"event: {name}\ndata: {json.dumps(data, allow_nan=False)}\n\n"

    async def _events(self) -> AsyncIterator[tuple[str, Any]]:
        """Yields the place in the queue, then the events; of moments that came together only the last."""
        last: dict[str, Any] = {}
        yield "facts", self.facts
        try:
            while (events := await self.job.take(0.5)) or not self.job.done:
                if not events:
                    yield "waiting", {"position": self.job.position()}
                    continue
                moments = [event.data for event in events if event.kind == "moment"]
                for event in events:
                    if event.kind not in ("quiet", "moment"):
                        yield event.kind, event.data
                if moments:
                    last = moments[-1]
                    yield "moment", last
                await asyncio.sleep(PULSE)
            reached = self.radius is not None and last.get("radius", 0) >= self.radius
            yield "end", {"reason": "radius" if reached else "n"}
        except OutOfTimeError:
            yield "end", {"reason": "seconds"}
        except SmoothheadsError as error:
            yield "error", {"error": self.public(str(error))}


async def unless_gone(receive: Receive, answer: Awaitable[T]) -> T:
    """Returns the answer; cancels it and raises GoneError when the client leaves before it is there."""
    # Two tasks: whichever ends first decides, and the other one is cancelled.
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
