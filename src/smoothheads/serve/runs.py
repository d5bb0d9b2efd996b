"""`/v1/runs`: ledgers, logs and training runs of the served folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from smoothheads.errors import suggest
from smoothheads.results.results import Results
from smoothheads.serve import logs
from smoothheads.serve.catalogue import Catalogue
from smoothheads.serve.logs import Logs
from smoothheads.serve.pictures import Pictures

MOST = 12  # logs in one view


@dataclass(frozen=True)
class Runs:
    catalogue: Catalogue
    pictures: Pictures
    logs: Logs = field(default_factory=Logs)

    async def overview(self, request: Request) -> Response:
        return await self._fresh(request, self._overview)

    async def curves(self, request: Request) -> Response:
        return await self._fresh(request, lambda: logs.curves(*self._chosen(request)))

    async def compare(self, request: Request) -> Response:
        return await self._fresh(request, lambda: logs.different(*self._chosen(request, exactly=2)))

    async def image(self, request: Request) -> Response:
        return await self._fresh(request, lambda: self._image(request))

    async def study(self, request: Request) -> Response:
        return await self._fresh(request, lambda: logs.study(self._one(request)))

    async def study_latex(self, request: Request) -> Response:
        text = await run_in_threadpool(lambda: logs.study_latex(self._one(request)))
        return _download(text.encode(), "application/x-tex; charset=utf-8", "study.tex")

    async def study_csv(self, request: Request) -> Response:
        text = await run_in_threadpool(lambda: logs.study_csv(self._one(request)))
        return _download(text.encode(), "text/csv; charset=utf-8", "study.csv")

    async def study_png(self, request: Request) -> Response:
        data = await run_in_threadpool(lambda: logs.study_png(self._one(request)))
        return _download(data, "image/png", "study.png")

    def _one(self, request: Request) -> Path:
        known = self.catalogue.contents().studies
        name = request.query_params.get("id", "")
        if name not in known:
            raise HTTPException(404, "no such study")
        return known[name]

    async def picture(self, request: Request) -> Response:
        def read() -> bytes | None:
            _, chosen = self._chosen(request)
            return self.pictures.of(chosen[0], _index(request), self.catalogue.networks().values())

        found = await run_in_threadpool(read)
        if found is None:
            raise HTTPException(404, "the image's data set is not here")
        return Response(found, media_type="image/png")

    async def png(self, request: Request) -> Response:
        data = await run_in_threadpool(lambda: logs.to_png(*self._chosen(request)))
        return _download(data, "image/png", "certified-accuracy.png")

    async def csv(self, request: Request) -> Response:
        text = await run_in_threadpool(lambda: logs.to_csv(*self._chosen(request)))
        return _download(text.encode(), "text/csv; charset=utf-8", "certified-accuracy.csv")

    async def latex(self, request: Request) -> Response:
        text = await run_in_threadpool(lambda: logs.latex(*self._chosen(request)))
        return _download(text.encode(), "application/x-tex; charset=utf-8", "certified-accuracy.tex")

    def _overview(self) -> dict[str, Any]:
        seen = self.catalogue.contents()
        return {
            "folder": self.catalogue.root.name,
            "ledgers": [self._row(name, path) for name, path in seen.ledgers.items()],
            "studies": list(seen.studies),
            "trainings": [logs.training(name, folder) for name, folder in seen.trainings.items()],
        }

    def _row(self, name: str, path: Path) -> dict[str, Any]:
        row = self.logs.row(name, path)
        return row | {"error": self.catalogue.public(row["error"])} if "error" in row else row

    def _image(self, request: Request) -> dict[str, Any]:
        names, chosen = self._chosen(request)
        index = _index(request)
        found = [
            {"id": name, "image": logs.image(log, index)} for name, log in zip(names, chosen, strict=True)
        ]
        if all(each["image"] is None for each in found):
            raise HTTPException(404, "no such image in these logs")
        return {"index": index, "logs": found}

    def _chosen(self, request: Request, exactly: int | None = None) -> tuple[list[str], list[Results]]:
        names = request.query_params.getlist("id")
        if not names or len(names) > MOST or exactly not in (None, len(names)):
            raise HTTPException(422, f"choose {exactly or f'1 to {MOST}'} logs by id")
        known = self.catalogue.contents().ledgers
        for name in names:
            if name not in known:
                raise HTTPException(404, f"no log {name[:80]!r}; {suggest(name[:80], known)}")
        return names, [self.logs.read(known[name]) for name in names]

    async def _fresh(self, request: Request, make: Callable[[], dict[str, Any]]) -> Response:
        """JSON with a tag, so that a page that looks again and again gets nothing while nothing changes."""
        body = json.dumps(await run_in_threadpool(make), allow_nan=False).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'
        headers = {"ETag": tag, "Cache-Control": "no-cache"}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return Response(body, media_type="application/json", headers=headers)


def _index(request: Request) -> int:
    text = request.query_params.get("index", "")
    if not (text.isascii() and text.isdigit() and len(text) < 13):
        raise HTTPException(422, "index: a whole number")
    return int(text)


def _download(data: bytes, kind: str, name: str) -> Response:
    return Response(data, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})
