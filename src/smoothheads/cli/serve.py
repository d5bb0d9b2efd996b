"""smoothheads serve CHECKPOINT|EXPORT|FOLDER"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated

import tyro

from smoothheads.cli.common import parse, say
from smoothheads.serve.server import Limits

DESCRIPTION = """A page in the browser: classify an image, see its certificate tighten as votes arrive, push
it along an attack, and look at the ledgers and training runs of a folder, live. The same over HTTP:
POST /v1/certify and /v1/predict, described in /openapi.json; /healthz, /readyz and /metrics for machines.

Only this machine is served unless --host says otherwise, and then a token is needed. The noise is keyed by a
secret that is drawn when the server starts, so that nobody can look for an image with unlucky noise."""

TOKEN = "SMOOTHHEADS_TOKEN"


@dataclass(frozen=True, kw_only=True)
class Serve:
    folder: tyro.conf.Positional[str]
    """A checkpoint, a training run, an export, hf://user/name, or a folder with any number of them and their
    ledgers."""
    host: str = "127.0.0.1"
    """Address to listen at; others than this machine's own need a token."""
    port: int = 8000
    """0: any that is free."""
    token: str | None = None
    """What clients must send (Authorization: Bearer), and people type once; default: $SMOOTHHEADS_TOKEN."""
    sigma: float | None = None
    """Noise of a checkpoint (default: as in training); an export has its own."""
    alpha: float | None = None
    """Probability that a certificate is wrong (default: 0.001, or the export's)."""
    threads: int = 1
    limits: Annotated[Limits, tyro.conf.arg(name="limit")] = field(default_factory=Limits)


def main(arguments: list[str]) -> None:
    default = Serve(folder="")
    args = parse(default, arguments or ["--help"], prog="serve", description=DESCRIPTION)

    from smoothheads.hub import local
    from smoothheads.serve.server import Server

    server = Server(
        local(args.folder),
        host=args.host,
        port=args.port,
        token=args.token or os.environ.get(TOKEN),
        limits=args.limits,
        sigma=args.sigma,
        alpha=args.alpha,
        threads=args.threads,
    )
    found = f"{server.networks} classifiers, {server.ledgers} ledgers"
    server.run(on_start=lambda: say(f"{found}; open {server.url} (Ctrl-C ends it)"))
