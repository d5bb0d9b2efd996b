from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from scipy import stats

from smoothheads.attack.outcome import Attacked, AttackOutcome, Claim
from smoothheads.errors import ConfigError
from smoothheads.report import plots
from smoothheads.results.manifest import Manifest
from smoothheads.results.results import Results
from smoothheads.types import ABSTAIN

Make = Callable[..., Results]


def told(log: Results, **changes: Any) -> Manifest:
    """Its manifest, with other settings."""
    assert log.manifest is not None
    return replace(log.manifest, certify=log.manifest.certify.changed(**changes))


def test_the_curve_is_the_certified_accuracy(make_log: Make) -> None:
    log = make_log()
    (axes,) = plots.certified_accuracy([log]).axes
    line = axes.lines[0]
    x, y = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    for i in (0, 100, 499):
        assert y[i] == np.mean(log.correct & (log.radius >= x[i]))
    assert y[-1] == 0
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    low, high = stats.binomtest(30, 40).proportion_ci(0.95, "exact")
    band = axes.collections[0].get_paths()[0].vertices
    assert np.asarray(band)[:, 1].max() == pytest.approx(high)
    assert low < 0.75 < high


def test_attacks_are_drawn_above_what_is_certified() -> None:
    attacked = (
        Attacked(Claim(0, 0, 0, 0.5), 63, 63, 256, 1),
        Attacked(Claim(1, 0, 0, 0.25), 15, 15),
        Attacked(Claim(2, 0, ABSTAIN, 0.0), -1),
        Attacked(Claim(3, 0, 1, 0.5), 63, 63),
    )
    outcome = AttackOutcome(attacked, 16, 0.003)
    (axes,) = plots.attacked_accuracy(outcome, "some").axes
    radii = np.asarray(axes.lines[0].get_xdata()).tolist()
    assert radii[-1] == pytest.approx(1.05)  # just beyond the farthest broken image
    low, high = (np.asarray(line.get_ydata()) for line in axes.lines)
    assert (low == outcome.certified_accuracy(radii)).all()
    assert (high == outcome.empirical_accuracy(radii)).all()
    assert (low[0], low[-1], high[0], high[-1]) == (0.5, 0, 0.5, 0.25)
    plots.render(plots.attacked_accuracy(AttackOutcome(attacked[2:3], 16, 0.003), "nothing"), "svg")
    (axes,) = plots.attacked_accuracy(outcome, "some", (0.0, 2.0)).axes
    assert axes.get_xlim()[1] == pytest.approx(2.1)  # as far as the table, where nothing was broken either


def test_a_common_ceiling_is_marked(make_log: Make) -> None:
    (axes,) = plots.certified_accuracy([make_log("a"), make_log("b", 20)]).axes
    assert [text.get_text() for text in axes.texts] == ["the most that n = 1,000 can show"]
    (axes,) = plots.certified_accuracy([make_log("a"), replace(make_log("b"), n=100)]).axes
    assert not axes.texts


def test_survival_of_the_label_probability(make_log: Make) -> None:
    axes = plots.label_probability([make_log()]).axes[0]
    line = axes.lines[0]
    z, share = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
    nearest = int(np.argmin(np.abs(z - stats.norm.ppf(0.8951))))
    assert share[nearest] == pytest.approx(11 / 40)  # shares 1, .99, ..., .90 are above
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["some"]  # type: ignore[union-attr]


def test_logs_without_votes_start_at_one_half(make_log: Make) -> None:
    bare = make_log().without_votes()
    axes = plots.label_probability([bare, replace(bare, sigma=None)]).axes[0]
    assert axes.get_xlim()[0] == 0
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["some (lower bound)"]  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", plots.FORMATS)
def test_formats_and_repeatable_bytes(make_log: Make, tmp_path: Path, kind: str) -> None:
    before = dict(mpl.rcParams)
    path = tmp_path / f"plot.{kind}"
    plots.save(plots.certified_accuracy([make_log()]), path)
    assert path.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[kind])
    assert plots.render(plots.certified_accuracy([make_log()]), kind) == path.read_bytes()
    assert dict(mpl.rcParams) == before


def test_another_ending_is_refused(make_log: Make, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="png, svg, pdf, not as 'gif'"):
        plots.save(plots.certified_accuracy([make_log()]), tmp_path / "plot.gif")


@pytest.mark.parametrize("name", ["_hidden", "$a_b$", r"$\frac$", "ä" * 3])
def test_names_are_shown_as_they_are(make_log: Make, name: str) -> None:
    svg = plots.render(plots.certified_accuracy([make_log(name)]), "svg").decode()
    assert f">{name}</text>" in svg


def test_ten_logs_are_told_apart() -> None:
    assert len({plots.style(i) for i in range(28)}) == 28


def test_a_log_that_certifies_nothing_still_plots(make_log: Make) -> None:
    nothing = make_log(right=0)
    for figure in (plots.certified_accuracy([nothing]), plots.label_probability([nothing])):
        plots.render(figure, "svg")


@pytest.mark.parametrize(("noise", "norm"), [("grid", "l2"), ("uniform", "l1"), ("laplace", "l1")])
def test_axes_carry_the_norm(make_log: Make, noise: str, norm: str) -> None:
    log = make_log()
    log = replace(log, manifest=told(log, noise=noise), norm=norm)
    (axes,) = plots.certified_accuracy([log]).axes
    assert axes.get_xlabel() == f"{norm} radius (pixels in [0, 1])"
