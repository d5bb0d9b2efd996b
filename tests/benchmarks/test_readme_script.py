"""The table of the README is made from committed rows, and its chart and picture can be made."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from benchmarks.readme import main, picture, table
from matplotlib import pyplot as plt

from smoothheads.data import Splits
from smoothheads.models.multihead import MultiHead
from smoothheads.smoothed import Smoothed

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_readme_table_is_that_of_the_study() -> None:
    """A comment below the table names the folders and arms that `benchmarks.readme table` makes it from."""
    folders, arms = re.findall(r"<!-- table: (.+): (.+) -->", README)[0]
    lines = table([ROOT / folder for folder in folders.split()], arms.split())
    found = re.findall(r"^\| (?:\S+: average certified radius|classes with .*) \|.*$", README, re.MULTILINE)
    assert lines == found


def test_chart_of_the_main_study(tmp_path: Path) -> None:
    out = tmp_path / "acr.svg"
    arms = ["gaussian-single", "gaussian-some"]
    main(
        [
            "chart",
            str(ROOT / "benchmarks/paper/main"),
            "--arms",
            *arms,
            "--costs",
            "1",
            "1.7",
            "--out",
            str(out),
        ]
    )
    assert "<svg" in out.read_text()


def test_an_unknown_arm_is_named() -> None:
    with pytest.raises(SystemExit, match="no arm 'nonesuch'"):
        table([ROOT / "benchmarks/paper/main"], ["nonesuch"])


def test_picture_of_a_certificate(tiny_network: Callable[..., MultiHead], small_digits: Splits) -> None:
    test = small_digits.test
    smoothed = Smoothed(tiny_network(heads=2), test.info, sigma=0.01, n=200, seed=0)
    index = next(i for i in range(20) if smoothed.certify_image(test.image(i), i).prediction >= 0)
    figure = picture(smoothed, test.image(index), index)
    titles = [axes.get_title() for axes in figure.axes]
    assert [title for title in titles if title] == [
        "image",
        "noisy copy",
        "noisy copy",
        "votes of the network",
        "certificate",
    ]
    plt.close(figure)
