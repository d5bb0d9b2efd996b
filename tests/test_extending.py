"""What docs/extending.md shows is a package outside ours, found by its entry points, and used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from smoothheads.certify.algorithm import CertifyParams
from smoothheads.certify.budgets import BUDGETS
from smoothheads.certify.config import CertifyConfig
from smoothheads.certify.engines import ConversionCache
from smoothheads.certify.engines.base import ENGINES, Network
from smoothheads.certify.votes import VoteCounter
from smoothheads.cli import main
from smoothheads.data import DATASETS, Splits
from smoothheads.errors import SoundnessError
from smoothheads.models import ARCHITECTURES
from smoothheads.models.aggregate import AGGREGATIONS
from smoothheads.models.multihead import MultiHead
from smoothheads.noise import NOISES
from smoothheads.objectives import METHODS
from smoothheads.registry import Registry
from smoothheads.types import Counts, Grid, Phase

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tests" / "plugin_package"
REGISTRIES: dict[str, Registry[Any]] = {
    "label-smoothing": METHODS,
    "two-layers": ARCHITECTURES,
    "stripes": DATASETS,
    "logistic": NOISES,
    "two-looks": BUDGETS,
    "float64": ENGINES,
    "median": AGGREGATIONS,
}
SMALL = ["--train.epochs", "1", "--train.batch", "32", "--data.subset.first", "96", "--model.heads", "3"]


@pytest.fixture(autouse=True)
def _installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after `pip install smoothheads-example`, until the test ends."""
    monkeypatch.syspath_prepend(str(PACKAGE))
    for registry in REGISTRIES.values():
        monkeypatch.setattr(registry, "_components", dict(registry._components))
        monkeypatch.setattr(registry, "_failures", None)


def test_the_page_shows_the_package() -> None:
    page = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"```python\n(.*?)```", page, re.DOTALL))
    files = (PACKAGE / "smoothheads_example").glob("*.py")
    assert shown == {path.read_text(encoding="utf-8") for path in files if path.stem != "__init__"}


def test_every_component_is_found_by_its_entry_point() -> None:
    for name, registry in REGISTRIES.items():
        assert name in registry.names()
        assert not registry.failures
        assert registry.get(name).name == name


def test_the_command_line_trains_and_certifies_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    theirs = ["--method", "label-smoothing", "--objective.method.fraction", "0.2"]
    theirs += ["--data.name", "stripes", "--data.contrast", "90"]
    theirs += ["--model.arch", "two-layers", "--model.cut", "2"]
    assert main(["train", "digits-some", *theirs, *SMALL, "--out", str(out)]) == 0
    config = json.loads((out / "config.json").read_text(encoding="utf-8"))
    assert config["objective"]["method"] == {"name": "label-smoothing", "draws": 1, "fraction": 0.2}
    assert config["data"]["name"] == "stripes"
    assert config["data"]["contrast"] == 90
    assert config["model"]["arch"] == "two-layers"

    few = ["--n0", "20", "--n", "200", "--block", "20", "--first", "5", "--aggregation", "median"]
    assert main(["certify", str(out), *few]) == 0
    capsys.readouterr()
    assert main(["audit", str(out / "ledger")]) == 0
    for kind, name in (("methods", "label-smoothing"), ("architectures", "two-layers")):
        assert main(["info", kind]) == 0
        assert name in capsys.readouterr().out
    assert main(["info", "two-layers", "--heads", "3"]) == 0
    assert "6,110" in capsys.readouterr().out  # parameters: 64 x 65, and 65 x 10 of each head


def test_their_settings_are_checked_and_explained(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["train", "digits-some", "--method", "label-smoothing", "--objective.method.fraction", "2"]) == 2
    )
    assert "Set fraction from 0 to below 1, not to 2" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["train", "digits-some", "--method", "label-smoothing", "--help"])
    assert "Fraction of the label" in capsys.readouterr().out


def test_their_noise_is_drawn_and_proves_no_more_than_is_true() -> None:
    law, sigma = NOISES.get("logistic")(), 0.5
    scale = sigma * 3**0.5 / np.pi
    noisy = law.keyed(sigma, Grid(255), seed=0, block_size=500)
    image = np.full((1, 4, 4), 128, dtype=np.uint8)
    errors = noisy.noisy(image, 0, Phase.ESTIMATION, 0).astype(np.float64) - 128 / 255
    assert stats.kstest(errors.ravel(), "logistic", args=(0, scale)).pvalue > 1e-6
    for distance in (0.05, 0.3, 1.0, 3.0):  # to the plane on which the answer changes, along one pixel
        p = float(stats.logistic.cdf(distance, scale=scale))
        assert 0 < law.radius(p, sigma) <= distance
        assert law.radius(law.probability(distance, sigma), sigma) == pytest.approx(distance)


def test_their_budget_stops_early_and_keeps_its_word() -> None:
    two_looks: Any = BUDGETS.get("two-looks")
    budget, terms = two_looks(n0=20, few=100, n=400, target=0.3), CertifyParams(sigma=0.5, alpha=0.05)
    rng = np.random.default_rng(0)

    def sampler(p: float) -> Any:
        def sample(_: Phase, count: int) -> Counts:
            hits = int(rng.binomial(count, p))
            return np.array([hits, count - hits])

        return sample

    assert budget.certify(sampler(0.99), terms).n == 100
    assert budget.certify(sampler(0.7), terms).n == 400
    runs = [budget.certify(sampler(0.75), terms) for _ in range(2_000)]
    assert {run.n for run in runs} == {100, 400}
    wrong = sum(run.p_lower > 0.75 for run in runs)
    assert stats.binomtest(wrong, len(runs), terms.alpha, alternative="greater").pvalue > 1e-6
    selection, votes = np.array([20, 0]), np.array([90, 10])
    stored = budget.recompute(terms, selection, votes, runs[0])
    assert (stored.prediction, stored.k, stored.n) == (0, 90, 100)
    with pytest.raises(SoundnessError):
        budget.recompute(terms, selection, votes * 2, runs[0])


def test_their_engine_computes_the_same_network(
    tiny_network: Callable[..., MultiHead], small_digits: Splits
) -> None:
    noise = NOISES.get("grid")().keyed(0.5, small_digits.test.info.grid, seed=0, block_size=20)
    network = Network(tiny_network(heads=3), small_digits.test.info, noise, ConversionCache())
    image = small_digits.test.image(0)
    votes = {}
    for name in ("torch", "float64"):
        config = CertifyConfig(sigma=0.5, block=20, engine=name, aggregation="median")
        counter = VoteCounter(ENGINES.get(name)(config, network), noise, config)
        votes[name] = counter.votes(image, 0, Phase.ESTIMATION, 0, 100)
    assert votes["float64"].aggregations[-1] == "median"
    for aggregation in votes["torch"].aggregations:  # in single precision a sample or two may lie on the edge
        moved = np.abs(
            votes["torch"].for_aggregation(aggregation) - votes["float64"].for_aggregation(aggregation)
        ).sum()
        assert moved <= 4, aggregation


@pytest.mark.parametrize(
    "choice", [("--noise", "logistic"), ("--budget", "two-looks"), ("--engine", "float64")]
)
def test_the_command_line_certifies_with_them(
    choice: tuple[str, str], network: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "ledger")
    few = ["--sigma", "0.5", "--n", "2000", "--first", "2", "--out", out]
    assert main(["certify", str(network), *choice, *few]) == 0
    assert choice[1] in (tmp_path / "ledger" / "manifest.json").read_text(encoding="utf-8")
    assert main(["audit", out]) == 0
