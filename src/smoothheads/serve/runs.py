"""`/v1/runs`: ledgers, logs, studies and training runs of the served folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, TypeVar

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from smoothheads.errors import suggest
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.serve import logs
from smoothheads.serve.asked import image_index
from smoothheads.serve.catalogue import Catalogue, Remembered, stamp
from smoothheads.serve.openapi import Endpoint, Handler
from smoothheads.serve.pictures import Pictures
from smoothheads.studies import outcome

T = TypeVar("T")
MOST = 12  # logs in one view
KINDS: Final = {
    ".png": "image/png",
    ".csv": "text/csv; charset=utf-8",
    ".tex": "application/x-tex; charset=utf-8",
}


@dataclass(frozen=True)
class Runs:
    catalogue: Catalogue
    pictures: Pictures
    read: Remembered[Results] = field(default_factory=lambda: Remembered(read_log, stamp))

    def endpoints(self) -> list[Endpoint]:
        def at(path: str, handler: Handler, summary: str, *parameters: str) -> Endpoint:
            return Endpoint(f"/v1/runs{path}", handler, summary, parameters)

        chosen, pair, study = self._chosen, partial(self._chosen, exactly=2), self._study
        file = "certified-accuracy"
        return [
            at("", _json(_itself, self._overview), "Ledgers, logs and training runs"),
            at("/curves", _json(chosen, logs.curves), "Certified accuracy over the radius", "id"),
            at("/curves.png", _file(file, chosen, logs.curves_png), "The same as a picture", "id"),
            at("/curves.csv", _file(file, chosen, logs.curves_csv), "The same as a table", "id"),
            at("/curves.tex", _file(file, chosen, logs.curves_latex), "Their tables for LaTeX", "id"),
            at("/compare", _json(pair, logs.different), "The paired difference of two logs", "id"),
            at("/image", _json(_itself, self._image), "One image in some logs", "id", "index"),
            at("/picture", self.picture, "That image as PNG", "id", "index"),
            at("/study", _json(study, logs.study), "The tables of a study that was kept", "id"),
            at("/study.png", _file("study", study, logs.study_png), "Its figure", "id"),
            at("/study.csv", _file("study", study, logs.study_csv), "The same as tables", "id"),
            at("/study.tex", _file("study", study, logs.study_latex), "The same for LaTeX", "id"),
        ]

    async def picture(self, request: Request) -> Response:
        def read() -> bytes | None:
            log = self._chosen(request)[0]
            return self.pictures.of(log, image_index(request), self.catalogue.networks().values())

        picture = await run_in_threadpool(read)
        if picture is None:
            raise HTTPException(404, "the image's data set is not here")
        return Response(picture, media_type="image/png")

    def _overview(self, _: Request) -> dict[str, Any]:
        seen = self.catalogue.contents()
        return {
            "folder": self.catalogue.root.name,
            "ledgers": [self._row(name, path) for name, path in seen.ledgers.items()],
            "studies": list(seen.studies),
            "trainings": [logs.training(name, folder) for name, folder in seen.trainings.items()],
        }

    def _row(self, name: str, path: Path) -> dict[str, Any]:
        row = logs.row(name, path, self.read)
        return row | {"error": self.catalogue.public(row["error"])} if "error" in row else row

    def _image(self, request: Request) -> dict[str, Any]:
        index = image_index(request)
        images = [{"id": log.name, "image": logs.image(log, index)} for log in self._chosen(request)]
        if all(each["image"] is None for each in images):
            raise HTTPException(404, "no such image in these logs")
        return {"index": index, "logs": images}

    def _chosen(self, request: Request, exactly: int | None = None) -> list[Results]:
        """The logs that a request names, called by these names."""
        names = request.query_params.getlist("id")
        if not names or len(names) > MOST or exactly not in (None, len(names)):
            raise HTTPException(422, f"choose {exactly or f'1 to {MOST}'} logs by id")
        known = self.catalogue.contents().ledgers
        for name in names:
            if name not in known:
                raise HTTPException(404, f"no log {name[:80]!r}; {suggest(name[:80], known)}")
        return [replace(self.read(known[name]), name=name) for name in names]

    def _study(self, request: Request) -> outcome.Outcome:
        known = self.catalogue.contents().studies
        name = request.query_params.get("id", "")
        if name not in known:
            raise HTTPException(404, "no such study")
        return outcome.load(known[name])


def _itself(request: Request) -> Request:
    return request


def _json(read: Callable[[Request], T], make: Callable[[T], dict[str, Any]]) -> Handler:
    """With a tag, so that a page that looks again and again gets nothing while nothing changes."""

    async def answer(request: Request) -> Response:
        values = await run_in_threadpool(lambda: make(read(request)))
        body = json.dumps(values, allow_nan=False).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)

    return answer


def _file(name: str, read: Callable[[Request], T], make: Callable[[T], bytes | str]) -> Handler:
    """To be saved as `name`, with the ending of the address."""

    async def answer(request: Request) -> Response:
        ending = PurePosixPath(request.url.path).suffix
        headers = {"Content-Disposition": f'attachment; filename="{name}{ending}"'}
        data = await run_in_threadpool(lambda: make(read(request)))
        return Response(data, media_type=KINDS[ending], headers=headers)

    return answer
