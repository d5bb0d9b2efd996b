"""`/v1/runs`: classifiers, ledgers, logs, studies and training runs of the served folder, by their names.

A name is the path below the served folder. It is looked up among what a walk has seen and never joined to a
path, so that no request reaches anything else.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response

from smoothheads.checkpoint import trained_config
from smoothheads.data import Dataset
from smoothheads.errors import SmoothheadsError, suggest
from smoothheads.results import ledger
from smoothheads.results.manifest import FILE
from smoothheads.results.read import read_log
from smoothheads.results.results import Results
from smoothheads.runs.models import CHECKPOINT, CONFIG, METRICS
from smoothheads.serve import images, logs
from smoothheads.serve.api import ERRORS, Index, PngResponse
from smoothheads.serve.images import cached
from smoothheads.serve.network import is_network
from smoothheads.studies import results as study_results
from smoothheads.studies.results import STUDY_FILE

MOST: Final = 12
"""Logs in one view."""
DEEPEST: Final = 8
FRESH: Final = 2.0
"""Seconds for which a walk is good."""
LOG_ENDINGS: Final = (".tsv", ".txt", ".log")
LOG_HEADER: Final = b"idx\tlabel\tpredict\tradius\tcorrect"
"""The field's columns; other tables of ours, such as attack.tsv, begin otherwise."""
KINDS: Final = {
    "png": "image/png",
    "csv": "text/csv; charset=utf-8",
    "tex": "application/x-tex; charset=utf-8",
}
Ids = Annotated[list[str], Query(alias="id", description=f"1 to {MOST} logs by their names.")]
Id = Annotated[str, Query(alias="id", description="Name of the study.")]
Kind = Literal["png", "csv", "tex"]


@dataclass(frozen=True)
class Contents:
    """Lists what a folder holds, by name."""

    networks: dict[str, Path] = field(default_factory=dict)
    ledgers: dict[str, Path] = field(default_factory=dict)
    """Folders of ours, and log files of others."""
    trainings: dict[str, Path] = field(default_factory=dict)
    studies: dict[str, Path] = field(default_factory=dict)
    """Folders that `study --out` wrote."""


class RunIndex:
    """Lists what a folder holds; it walks the folder again when it is asked some time later."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self._lock = threading.Lock()
        self._contents, self._walked = Contents(), float("-inf")

    def contents(self) -> Contents:
        with self._lock:
            if time.monotonic() - self._walked > FRESH:
                self._contents, self._walked = self._walk(), time.monotonic()
            return self._contents

    def networks(self) -> dict[str, Path]:
        return self.contents().networks

    def public(self, message: str) -> str:
        """Returns a message without the place of the folder on this machine."""
        return message.replace(f"{self.root.parent}{os.sep}", "")

    def _walk(self) -> Contents:
        contents = Contents()
        inside: set[Path] = set()  # checkpoints of runs and exports, which go by the names of these
        # From the top down: a run comes before the checkpoint inside of it.
        for folder, files in _folders(self.root):
            name = self._name(folder)
            if is_network(folder) and folder not in inside and not _has_special(folder):
                contents.networks[name] = folder
                inside.add(folder / CHECKPOINT)
            if {ledger.TABLE, FILE} <= files:
                contents.ledgers[name] = folder
            if STUDY_FILE in files:
                contents.studies[name] = folder
            # A training run is listed from its first epoch on, before there is a checkpoint.
            if {METRICS, CONFIG} <= files:
                contents.trainings[name] = folder
            for file in sorted(files - {ledger.TABLE}):
                if file.endswith(LOG_ENDINGS) and _is_log(folder / file):
                    contents.ledgers[self._name(folder / file)] = folder / file
        return contents

    def _name(self, path: Path) -> str:
        return self.root.name if path == self.root else path.relative_to(self.root).as_posix()


def routes(served: RunIndex, test_images: Callable[[Path], Dataset]) -> APIRouter:
    """Returns the routes below /v1/runs.

    Args:
        test_images: Returns the test images of the data set that a network was trained on.
    """
    router = APIRouter(prefix="/v1/runs", responses=ERRORS)
    read = cached(read_log, logs.stamp)

    def find(what: str, name: str, known: Mapping[str, Path]) -> Path:
        # Names are looked up among what the walk saw, and shortened in messages.
        if name not in known:
            raise HTTPException(404, f"There is no {what} {name[:80]!r}; {suggest(name[:80], known)}.")
        return known[name]

    def chosen(names: list[str], exactly: int | None = None) -> list[Results]:
        if not names or len(names) > MOST or exactly not in (None, len(names)):
            raise HTTPException(422, f"choose {exactly or f'1 to {MOST}'} logs by id")
        known = served.contents().ledgers
        return [replace(read(find("log", name, known)), name=name) for name in names]

    @router.get("", summary="Ledgers, logs, studies and training runs")
    def overview() -> Response:
        contents = served.contents()
        rows = [logs.row(name, path, read) for name, path in contents.ledgers.items()]
        for row in rows:
            if "error" in row:
                row["error"] = served.public(row["error"])
        trainings = [logs.training(name, folder) for name, folder in contents.trainings.items()]
        held = {"ledgers": rows, "studies": list(contents.studies), "trainings": trainings}
        return JSONResponse({"folder": served.root.name, **held})

    @router.get("/curves", summary="Certified accuracy over the radius, and the tables of `report`")
    def curves(ids: Ids) -> Response:
        return JSONResponse(logs.curves(chosen(ids)))

    @router.get("/curves.{kind}", summary="The curves as a picture or a table, the tables for LaTeX")
    def curves_file(ids: Ids, kind: Kind) -> Response:
        return download(f"certified-accuracy.{kind}", logs.curves_file(chosen(ids), kind))

    @router.get("/compare", summary="The paired difference of two logs")
    def compare(ids: Ids) -> Response:
        return JSONResponse(logs.different(chosen(ids, exactly=2)))

    @router.get("/image", summary="One image in some logs")
    def image(ids: Ids, index: Index) -> Response:
        found = [{"id": log.name, "image": logs.image(log, index)} for log in chosen(ids)]
        if all(each["image"] is None for each in found):
            raise HTTPException(404, "no such image in these logs")
        return JSONResponse({"index": index, "logs": found})

    @router.get("/picture", summary="That image as PNG", response_class=PngResponse)
    def picture(ids: Ids, index: Index) -> Response:
        # A log names its data set only; a network that was trained on it knows where that lies.
        log = chosen(ids)[0]
        for network in served.networks().values():
            with suppress(SmoothheadsError, OSError):
                if trained_config(network).data.name == logs.data_name(log):
                    found = images.picture(test_images(network), index)
                    if found is not None:
                        return PngResponse(found)
        raise HTTPException(404, "the image's data set is not here")

    @router.get("/study", summary="The tables of a study")
    def study(name: Id = "") -> Response:
        found = study_results.load(find("study", name, served.contents().studies))
        return JSONResponse(logs.study(found))

    @router.get("/study.{kind}", summary="The figure of a study, its tables as CSV or for LaTeX")
    def study_file(kind: Kind, name: Id = "") -> Response:
        found = study_results.load(find("study", name, served.contents().studies))
        return download(f"study.{kind}", logs.study_file(found, kind))

    return router


def download(name: str, data: bytes) -> Response:
    """Returns a file that the browser saves under the name."""
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(data, media_type=KINDS[name.rpartition(".")[2]], headers=headers)


def _folders(root: Path) -> Iterator[tuple[Path, set[str]]]:
    """Yields folders from the top down with their regular files; hidden folders and links are left alone."""
    for where, folders, files in os.walk(root, followlinks=False):
        folder = Path(where)
        depth = len(folder.relative_to(root).parts)
        folders[:] = sorted(name for name in folders if not name.startswith(".")) if depth < DEEPEST else []
        yield folder, {name for name in files if _is_regular(folder / name)}


def _is_regular(path: Path) -> bool:
    """Returns whether it is a plain file: to open a FIFO would block until somebody writes into it."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def _has_special(folder: Path) -> bool:
    """Returns whether a network's folder holds a FIFO, socket or device; it is not served then."""
    paths: Iterable[Path] = folder.rglob("*")
    return any(not _is_regular(path) and not path.is_dir() for path in paths)


def _is_log(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(len(LOG_HEADER) + 3).lstrip(b"\xef\xbb\xbf").startswith(LOG_HEADER)
    except OSError:
        return False
