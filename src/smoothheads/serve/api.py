"""`/v1`: certify, predict and attack images, as one answer or as events while the votes arrive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from smoothheads.data import Dataset
from smoothheads.errors import SmoothheadsError
from smoothheads.serve import asked as asking
from smoothheads.serve import pictures, work
from smoothheads.serve.asked import ClientRequest
from smoothheads.serve.events import Events, event, unless_gone
from smoothheads.serve.limits import Limits
from smoothheads.serve.metrics import Metrics
from smoothheads.serve.openapi import EVENTS, Endpoint
from smoothheads.serve.pictures import Pictures
from smoothheads.serve.scheduler import BusyError, OutOfTimeError, RequestJob, Scheduler
from smoothheads.serve.work import Networks, News

T = TypeVar("T")
Work = Callable[[Networks, ClientRequest, Metrics], Iterator[News]]

PULSE = 0.1  # seconds between two events: nobody reads faster
SAMPLES = 20
TOLD = ("sigma", "alpha", "norm", "aggregation", "scope", "notes")


@dataclass(frozen=True)
class Api:
    networks: Networks
    scheduler: Scheduler
    limits: Limits
    metrics: Metrics
    pictures: Pictures
    public: Callable[[str], str] = str
    """What of a message may leave the machine."""

    def endpoints(self) -> list[Endpoint]:
        certify = partial(self._answer, work.certify, "moment")
        predict = partial(self._answer, work.predict, "answer")
        return [
            Endpoint("/v1/certify", certify, "Class and certified radius of images", answer="Certified"),
            Endpoint("/v1/predict", predict, "Class of images, or an abstention", answer="Predicted"),
            Endpoint("/v1/attack", self.attack, "An image pushed away from its class", answer=EVENTS),
            Endpoint("/v1/models", self.models, "The classifiers that are served"),
            Endpoint("/v1/model", self.model, "One of them: classes, image size, sigma, alpha", ("model",)),
            Endpoint("/v1/samples", self.samples, "Test images to try", ("model",)),
            Endpoint("/v1/sample", self.sample, "One of them as PNG", ("model", "index")),
        ]

    async def attack(self, request: Request) -> Response:
        """Events only."""
        return self._events(await asking.read(request, self.limits), work.attack)

    async def models(self, _: Request) -> Response:
        limits = {"n": self.limits.n, "seconds": self.limits.seconds, "images": self.limits.images}
        return JSONResponse({"models": self.networks.names, "limits": limits})

    async def model(self, request: Request) -> Response:
        """The facts of a network; opening it is work like any other."""
        name = request.query_params.get("model")
        facts = self.networks.facts(name)
        if facts is None:
            job = self._submit(work.opened(self.networks, name), self.limits.seconds)
            facts = (await unless_gone(request.receive, _all(job)))[0]
        return JSONResponse(facts)

    async def samples(self, request: Request) -> Response:
        """Some test images to try, if the data set is here."""
        try:
            samples = await run_in_threadpool(lambda: pictures.samples(self._dataset(request), SAMPLES))
            return JSONResponse({"samples": samples})
        except SmoothheadsError as error:
            return JSONResponse({"samples": [], "reason": self.public(str(error))})

    async def sample(self, request: Request) -> Response:
        index = asking.image_index(request)
        picture = await run_in_threadpool(lambda: pictures.picture(self._dataset(request), index))
        if picture is None:
            raise HTTPException(404, "no such image")
        return Response(picture, media_type="image/png")

    def _dataset(self, request: Request) -> Dataset:
        return self.pictures.dataset(self.networks.folder(request.query_params.get("model")))

    async def _answer(self, work_of: Work, kind: str, request: Request) -> Response:
        """The last news of that kind, of every image; or all of them as events."""
        asked = await asking.read(request, self.limits)
        if "text/event-stream" in request.headers.get("accept", ""):
            return self._events(asked, work_of)
        job = self._submit(work_of(self.networks, asked, self.metrics), asked.seconds)
        facts: dict[str, Any] = {}
        answers: list[dict[str, Any]] = [{"error": "not reached in time"} for _ in asked.images]

        async def finish() -> None:
            try:
                async for step in job:
                    if step.kind == "facts":
                        facts.update({key: step.data[key] for key in TOLD})
                    if step.kind == kind:
                        answers[step.image] = step.data
            except OutOfTimeError:
                pass

        try:
            await unless_gone(request.receive, finish())
        finally:
            job.cancel()
        return JSONResponse({"answers": answers, **facts})

    def _events(self, asked: ClientRequest, work_of: Work) -> Response:
        if len(asked.images) != 1:
            raise HTTPException(422, "events are for one image; send one")
        job = self._submit(work_of(self.networks, asked, self.metrics), asked.seconds)
        return Events(_told(job, asked, self.public))

    def _submit(self, steps: Iterator[T], seconds: float) -> RequestJob[T]:
        try:
            return self.scheduler.submit(steps, seconds=seconds)
        except BusyError:
            raise HTTPException(429, "too many requests under way", {"Retry-After": "1"}) from None


async def _all(job: RequestJob[T]) -> list[T]:
    try:
        return [item async for item in job]
    finally:
        job.cancel()


async def _told(
    job: RequestJob[News], asked: ClientRequest, public: Callable[[str], str]
) -> AsyncIterator[bytes]:
    """Its place in the queue, then its news; of the certificates that came together only the last."""
    last: dict[str, Any] = {}
    try:
        while True:
            await job.news(0.5)
            done = job.done
            steps = job.take()
            if not steps and not done:
                yield event("waiting", {"position": job.waiting()})
            moments = [step for step in steps if step.kind == "moment"]
            for step in steps:
                if step.kind not in ("quiet", "moment"):
                    yield event(step.kind, step.data)
            if moments:
                last = moments[-1].data
                yield event("moment", last)
            if done and not steps:
                yield event("end", {"reason": "radius" if last.get("radius", 0) >= asked.radius else "n"})
                return
            await asyncio.sleep(PULSE)
    except OutOfTimeError:
        yield event("end", {"reason": "seconds"})
    except SmoothheadsError as error:
        yield event("error", {"error": public(str(error))})
    finally:
        job.cancel()
