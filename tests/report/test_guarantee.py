from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from smoothheads.report import words
from smoothheads.results.results import Results


def test_the_run_s_own_numbers(make_log: Callable[..., Results]) -> None:
    text = " ".join(words.guaranteed(make_log()))
    assert "probability at most 0.001 per image" in text
    assert "no more than 1 of the statements are wrong" in text  # binom.ppf(.999, 40, .001)


def test_an_unknown_alpha_promises_nothing_in_numbers(make_log: Callable[..., Results]) -> None:
    lines = words.guaranteed(replace(make_log(), alpha=None))
    assert "not stated" in " ".join(lines)
    assert len(lines) == 2


def test_scope_comes_from_the_manifest(make_log: Callable[..., Results]) -> None:
    assert words.scope(make_log()) == "Scope: a scope."
    assert "does not say" in words.scope(replace(make_log(), manifest=None))
    assert any("40 images" in line for line in words.not_guaranteed(make_log()))


def test_the_norm_is_the_noise_s(make_log: Callable[..., Results]) -> None:
    uniform = replace(make_log(), norm="l1")
    assert "an l1 norm below its radius" in words.guaranteed(uniform)[0]
    assert "an l2 norm below its radius" in words.guaranteed(make_log())[0]
    assert any("than the l1 norm" in line for line in words.not_guaranteed(uniform))
