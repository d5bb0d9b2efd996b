"""The command `smoothheads serve FOLDER`."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Annotated, Final

import tyro

from smoothheads.cli.common import Command, say
from smoothheads.serve.server import Limits

TOKEN: Final = "SMOOTHHEADS_TOKEN"


@dataclass(frozen=True, kw_only=True)
class ServeCommand(Command):
    """Open a page in the browser: classify an image, see its certificate tighten as votes arrive, push the
    image along an attack, and look at the ledgers and training runs of a folder while they grow. Programs can
    do the same over HTTP: POST /v1/certify and /v1/predict, described in /openapi.json; /healthz, /readyz and
    /metrics are for machines.

    Only this machine is served unless --host says otherwise, and then a token is needed. A secret that is
    drawn when the server starts keys the noise, so that nobody can search for an image with unlucky noise."""

    folder: tyro.conf.Positional[str]
    """A checkpoint, a training run, an export, hf://user/name, or a folder with any number of them and their
    ledgers."""
    host: str = "127.0.0.1"
    """Address to listen at. Any address that other machines reach needs a token."""
    port: int = 8000
    """Port to listen at; 0 takes any free one."""
    token: str | None = None
    """Password that programs send (Authorization: Bearer TOKEN) and people type once. If omitted,
    $SMOOTHHEADS_TOKEN is used."""
    sigma: float | None = None
    """Standard deviation of the noise for checkpoints. If omitted, that of the training."""
    alpha: float | None = None
    """Probability that a certificate is wrong. If omitted, 0.001, or that of the export."""
    threads: int = 1
    """Threads of the network."""
    limits: Annotated[Limits, tyro.conf.arg(name="limit")] = field(default_factory=Limits)

    def run(self) -> None:
        from smoothheads.hub import local
        from smoothheads.serve.server import Server

        server = Server(
            local(self.folder),
            host=self.host,
            port=self.port,
            token=self.token or os.environ.get(TOKEN),
            limits=self.limits,
            sigma=self.sigma,
            alpha=self.alpha,
            threads=self.threads,
        )
        count = f"{server.networks} classifiers, {server.ledgers} ledgers"
        server.run(on_start=lambda: say(f"{count}; open {server.url} (Ctrl-C ends it)"))
