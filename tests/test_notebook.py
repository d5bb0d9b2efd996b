"""Certificates, votes and results show themselves in a notebook, names as text."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.example import example_run

from smoothheads.results import read_log
from smoothheads.types import ABSTAIN, Certificate, Votes


def whole(html: str) -> str:
    ElementTree.fromstring(f"<div>{html}</div>")
    return re.sub(r"<[^>]*>", " ", html)


def test_a_certificate() -> None:
    text = whole(Certificate(3, 0.49999, 0.9876543, 990, 1000, 100)._repr_html_())
    assert "class 3" in text
    assert "0.4999" in text  # never more than it is
    assert "990 of 1,000" in text
    assert "abstains" in whole(Certificate(ABSTAIN, 0.0, 0.0, 1, 2, 1)._repr_html_())


def test_a_certificate_shows_never_more_than_it_is() -> None:
    just_below = math.nextafter(0.0037, 0)
    text = whole(Certificate(3, just_below, just_below, 990, 1000, 100)._repr_html_())
    assert "0.0036 " in text
    assert "at least 0.003699 " in text


def test_votes() -> None:
    text = whole(Votes(("ensemble", "head-1"), np.array([[3, 7], [10, 0]]))._repr_html_())
    assert "10 samples" in text
    assert "head-1" in text


@pytest.mark.parametrize("name", ["some", "<b onclick='x'>&"])
def test_results(name: str) -> None:
    results = replace(read_log(example_run() / "ledger-fixed"), name=name)
    html = results._repr_html_()
    assert "<b onclick" not in html
    assert "average certified radius" in whole(html)
    assert "<polyline" in html
