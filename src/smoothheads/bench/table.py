"""smoothheads bench table CHECKPOINT: the certified-accuracy table, by the sequential budget in a fast engine
and by n copies of every image in the plain loop."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from smoothheads.bench import contenders, machine
from smoothheads.bench.networks import Bench
from smoothheads.bench.outcome import Outcome
from smoothheads.bench.plain import MeanOfHeads
from smoothheads.bench.quality import summary
from smoothheads.bench.timing import Job, OnRound, interleaved
from smoothheads.config import CertifyConfig
from smoothheads.report.table import Cell
from smoothheads.types import Certificate, Phase

PLAIN: Final = "plain loop, fixed"
PHASES: Final = (Phase.SELECTION, Phase.PILOT, Phase.ESTIMATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSettings:
    sigma: float
    images: int = 10
    """Test images, spread evenly."""
    n: int = 100_000
    alpha: float = 0.001
    engines: tuple[str, ...] = ("torch", "openvino int8")
    """Which engines certify with the table budget."""
    label_aware: bool = False
    """Test the true label instead of a chosen class."""
    plain_copies: int = 1000
    """Copies per round from which the plain loop's time for n0 + n is scaled up: its passes are all alike."""
    rounds: int = 5
    threads: int = 1


def run(
    settings: TableSettings, bench: Bench, name: str, folder: Path, on_round: OnRound | None = None
) -> Outcome:
    config = CertifyConfig(sigma=settings.sigma, n=settings.n, alpha=settings.alpha, threads=settings.threads)
    before = machine.describe(settings.threads)
    loop = contenders.plain_job(MeanOfHeads(bench.model).eval(), bench, config, settings.plain_copies)
    tables = {kind: _Table(settings, bench, config, kind, folder) for kind in settings.engines}
    jobs: dict[str, Job] = {PLAIN: loop} | {f"{kind}, table": table for kind, table in tables.items()}
    rates = interleaved(jobs, settings.rounds, on_round=on_round)
    rates[PLAIN] = rates[PLAIN] / (config.n0 + config.n)  # from copies to images per second
    facts = {f"{kind}, table": table.facts() for kind, table in tables.items()}
    return Outcome(
        name=f"table-{name}",
        title=f"{name}: certified-accuracy table of {len(bench.images)} images, n = {settings.n}, "
        f"alpha = {settings.alpha:g}, sigma = {settings.sigma:g}",
        unit="images/s",
        baselines=(PLAIN,),
        rates=rates,
        machine=before,
        settings=asdict(settings),
        facts=facts | {PLAIN: {"copies per image": Cell(f"{config.n0 + config.n:,}", config.n0 + config.n)}},
        notes=(
            f"The plain loop was timed on {settings.plain_copies} copies a round and scaled to "
            f"{config.n0 + config.n:,} per image; the tables are whole runs, every round with other noise.",
        ),
    )


class _Table:
    """A whole table in every turn, with noise of its own."""

    def __init__(
        self, settings: TableSettings, bench: Bench, config: CertifyConfig, engine: str, folder: Path
    ) -> None:
        self.bench = bench
        changes = {"budget": "table", "label_aware": settings.label_aware, **contenders.settings_of(engine)}
        self.smoothed = contenders.make(bench, replace(config, **changes), folder)
        self.copies: list[int] = []
        self.certificates: list[Certificate] = []

    def __call__(self, turn: int) -> int:
        self.copies, self.certificates = [], []
        for position, label in enumerate(self.bench.images.labels.tolist()):
            key = turn * len(self.bench.images) + position
            certificate, sampler = self.smoothed.certify_image(
                self.bench.images.image(position), key, label=label
            )
            self.certificates.append(certificate)
            self.copies.append(sum(sampler.table(phase).n for phase in PHASES))
        return len(self.certificates)

    def facts(self) -> dict[str, Cell]:
        """Of the last round."""
        copies = float(np.mean(self.copies))
        certified = summary(self.certificates, self.bench.images.labels, self.smoothed.ceiling)
        return {"copies per image": Cell(f"{copies:,.0f}", copies)} | certified
