"""How often certificates are wrong, counted: thousands of runs of every budget where the truth is known.

    python -m benchmarks.coverage --json coverage.json --plot docs/images/coverage.svg

Votes come from designed class probabilities (the budgets' real code, no network), then from a linear network
with real noise through `Smoothed`, whose true radius is a distance. A budget breaks its promise when the
errors seen have probability below 1e-6 under it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib as mpl
import numpy as np
import torch
import tyro
from matplotlib.figure import Figure
from scipy import special, stats
from torch import Tensor, nn

from smoothheads.certify.algorithm import CertifyParams
from smoothheads.certify.bounds import clopper_pearson_lower
from smoothheads.certify.budgets import AnytimeBudget, Budget, FixedBudget, RadiusBudget, TableBudget
from smoothheads.data import DataInfo
from smoothheads.device import threads
from smoothheads.models.multihead import MultiHead
from smoothheads.report.table import Cell, Table, to_markdown
from smoothheads.results.metrics import binomial_band
from smoothheads.smoothed import Smoothed
from smoothheads.types import Certificate, Counts, Grid, Phase

FALSE_ALARM = 1e-6
N = 10_000
RADII = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0)
JUST_BELOW = 1e-12

Shares = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Designed:
    """A base classifier with these class probabilities at the image; a Sampler."""

    shares: Shares
    rng: np.random.Generator

    def __call__(self, phase: Phase, count: int) -> Counts:  # noqa: ARG002
        return self.rng.multinomial(count, self.shares)

    @property
    def radius(self) -> float:
        """True radius / sigma of the worst classifier with these probabilities."""
        first, second = sorted(self.shares, reverse=True)[:2]
        return max(0.0, float(special.ndtri(first) - special.ndtri(second)) / 2)

    def is_false(self, certificate: Certificate) -> bool:
        if certificate.abstained:
            return False
        return self.shares[certificate.prediction] < max(self.shares) or certificate.radius > self.radius


class Count(NamedTuple):
    budget: str
    truth: str
    alpha: float
    runs: int
    errors: int

    @property
    def rate(self) -> float:
        return self.errors / self.runs

    @property
    def interval(self) -> tuple[float, float]:
        """Exact, 95 %, two-sided."""
        low, high = binomial_band(np.array([self.rate]), self.runs)
        return float(low[0]), float(high[0])

    @property
    def p_value(self) -> float:
        """Probability of at least as many errors when each has probability alpha."""
        return float(stats.binom.sf(self.errors - 1, self.runs, self.alpha))

    @property
    def kept(self) -> bool:
        return self.p_value > FALSE_ALARM


BUDGETS: dict[str, Budget] = {
    "fixed": FixedBudget(n=N),
    "table": TableBudget(radii=RADII, n=N),
    "table, label-aware": TableBudget(radii=RADII, n=N, label_aware=True),
    "radius": RadiusBudget(n=N),
    "anytime": AnytimeBudget(n=N // 10),
}


def truths(alpha: float) -> dict[str, Shares]:
    """Probabilities on both sides of what the budgets decide, and the least favourable ones.

    Clopper-Pearson errs with probability alpha exactly at its own values (`bound of`), a table just below
    the probability of a radius (`radius`).
    """

    def pair(p: float) -> Shares:
        return (p, 1 - p)

    def bound(k: int) -> float:
        return clopper_pearson_lower(k, N, alpha) - JUST_BELOW

    return {
        "below 0.5": pair(0.5 - JUST_BELOW),
        f"bound of {8 * N // 10:,}": pair(bound(8 * N // 10)),
        "below radius 1": pair(float(special.ndtr(1.0)) - JUST_BELOW),
        "above radius 1": pair(float(special.ndtr(1.0)) + 0.002),
        "below radius 2": pair(float(special.ndtr(2.0)) - JUST_BELOW),
        f"bound of {N:,}": pair(bound(N)),
        "0.45, 0.3, 0.25": (0.45, 0.3, 0.25),
        "ten classes alike": (0.1,) * 10,
    }


def count_errors(budget: Budget, alpha: float, shares: Shares, runs: int, rng: np.random.Generator) -> int:
    classifier = Designed(shares, rng)
    label, errors = 0 if budget.uses_label else None, 0
    for _ in range(runs):
        terms = CertifyParams(sigma=1.0, alpha=alpha, label=label)
        errors += classifier.is_false(budget.certify(classifier, terms))
    return errors


def simulate(runs: int, alphas: Sequence[float]) -> Iterator[Count]:
    for a, alpha in enumerate(alphas):
        for b, (name, budget) in enumerate(BUDGETS.items()):
            for t, (truth, shares) in enumerate(truths(alpha).items()):
                errors = count_errors(budget, alpha, shares, runs, np.random.default_rng([11, a, b, t]))
                yield Count(name, truth, alpha, runs, errors)


class HalfSpace(nn.Module):
    """Class 1 on one side of a hyperplane."""

    def __init__(self, normal: Tensor, level: float) -> None:
        super().__init__()
        self.normal, self.level = nn.Parameter(normal), level

    def forward(self, x_NCHW: Tensor) -> Tensor:
        score_N = x_NCHW.flatten(1) @ self.normal - self.level
        return torch.stack([-score_N, score_N], 1)


def network_runs(runs: int, *, n: int = 1000, alpha: float = 0.05, per_seed: int = 50) -> Iterator[Count]:
    """Three linear heads, real noise, `Smoothed`: each run has a noise key of its own.

    The distance to the hyperplane is where Clopper-Pearson at n errs most, and a radius of the table lies
    just beyond it.
    """
    sigma, side, rng = 0.25, 8, np.random.default_rng(12)
    image = rng.integers(0, 256, (1, side, side), dtype=np.uint8)
    normal = rng.standard_normal(side * side)
    normal /= np.linalg.norm(normal)
    distance = sigma * float(special.ndtri(clopper_pearson_lower(9 * n // 10, n, alpha)))
    level = float(image.ravel() / 255 @ normal) - distance
    direction = torch.from_numpy(normal.astype(np.float32))
    model = MultiHead(nn.Identity(), [HalfSpace(direction * scale, level * scale) for scale in (0.5, 1, 2)])
    info = DataInfo("half-space", Grid(255), image.shape, ("left", "right"), (0.0,), (1.0,))
    shared: dict[str, Any] = {"sigma": sigma, "n": n, "alpha": alpha}
    for name, changes in network_budgets(distance).items():
        errors = 0
        for start in range(0, runs, per_seed):
            smoothed = Smoothed(model, info, **shared, **changes, seed=start // per_seed)
            found = [smoothed.certify_image(image, index) for index in range(min(per_seed, runs - start))]
            errors += sum(each.prediction == 0 or each.radius > distance for each in found)
        yield Count(name, "linear network", alpha, runs, errors)


def network_budgets(distance: float) -> dict[str, dict[str, Any]]:
    radii = tuple(factor * distance for factor in (0.0, 0.5, 1.0 + 1e-9, 1.5))
    return {
        "fixed": {},
        "fixed, float noise": {"noise": "gaussian"},
        "table": {"budget": "table", "radii": radii},
        "radius": {"budget": "radius"},
        "anytime": {"budget": "anytime"},
    }


def summary(counts: Sequence[Count], title: str) -> Table:
    """Errors / alpha of every count, and the interval and the test of the worst of each budget."""
    truths = tuple(dict.fromkeys(each.truth for each in counts))
    rows = []
    for budget in dict.fromkeys(each.budget for each in counts):
        found = {each.truth: each for each in counts if each.budget == budget}
        worst = max(found.values(), key=lambda each: each.rate)
        low, high = (end / worst.alpha for end in worst.interval)
        rows.append(
            (
                Cell(budget),
                Cell(f"{worst.runs:,}", worst.runs),
                *(Cell(f"{found[truth].rate / worst.alpha:.3f}", found[truth].rate) for truth in truths),
                Cell(f"{low:.2f} to {high:.2f}", worst.interval),
                Cell(f"{worst.p_value:.2g}", worst.p_value),
            )
        )
    columns = ("errors / alpha", "runs each", *truths, "worst: 95 % interval", "worst: P(as many)")
    return Table(title, columns, tuple(rows))


def plot(counts: Sequence[Count]) -> Figure:
    """Every count as a bar of its interval, in units of alpha; a kept promise reaches below 1."""
    alphas = sorted({each.alpha for each in counts})
    figure = Figure(figsize=(9, 10), layout="constrained")
    for axes, alpha in zip(np.atleast_1d(figure.subplots(1, len(alphas), sharey=True)), alphas, strict=True):
        shown = [each for each in counts if each.alpha == alpha]
        for y, each in enumerate(shown):
            low, high = (end / alpha for end in each.interval)
            axes.plot([low, high], [y, y], color="#0072B2", linewidth=1.5)
            axes.plot([each.rate / alpha], [y], "o", color="#0072B2", markersize=3)
        axes.axvline(1.0, color="#D55E00", linewidth=1)
        axes.set_yticks(range(len(shown)), [f"{each.budget}: {each.truth}" for each in shown], fontsize=7)
        axes.set_xlabel(f"errors / alpha, alpha = {alpha:g}")
        axes.set_xlim(left=0)
        axes.set_ylim(len(shown) - 0.5, -0.5)
    return figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    runs: int = 20_000
    network_runs: int = 1_000
    alphas: tuple[float, ...] = (0.001, 0.05)
    json: Path | None = None
    plot: Path | None = None


def main(settings: Settings) -> None:
    simulated = list(simulate(settings.runs, settings.alphas))
    with threads(1):
        network = list(network_runs(settings.network_runs))
    tables = [
        summary([each for each in simulated if each.alpha == alpha], f"alpha = {alpha:g}")
        for alpha in settings.alphas
    ]
    tables.append(summary(network, "linear network through Smoothed, alpha = 0.05"))
    print("\n\n".join(to_markdown(table) for table in tables))
    broken = [each for each in (*simulated, *network) if not each.kept]
    print(f"\n{len(simulated) + len(network)} counts, promises broken: {broken or 'none'}")
    if settings.json:
        counts = [each._asdict() for each in (*simulated, *network)]
        settings.json.write_text(json.dumps({"false_alarm": FALSE_ALARM, "counts": counts}, indent=1))
    if settings.plot:
        with mpl.rc_context({"svg.hashsalt": "smoothheads", "svg.fonttype": "none"}):
            plot(simulated).savefig(settings.plot, metadata={"Date": None})


if __name__ == "__main__":
    main(tyro.cli(Settings, description=__doc__))
