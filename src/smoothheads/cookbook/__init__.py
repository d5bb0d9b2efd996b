"""Recipes: benchmark x structure x method x sigma, composed when asked for; the published ones have names.

A name is BENCHMARK[-STRUCTURE][-METHOD][-SIGMA], such as `cifar10-resnet110-some-consistency-0.50`; what it
leaves out is the benchmark's own. The command line and Python start from one and override fields.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from smoothheads.cookbook import methods, structures
from smoothheads.cookbook.base import Recipe
from smoothheads.cookbook.benchmarks import BENCHMARKS, benchmark
from smoothheads.cookbook.changes import recipe
from smoothheads.errors import ConfigError, suggest
from smoothheads.objectives.method import METHODS

__all__ = ["Recipe", "get", "is_recipe", "names", "recipe"]


class _Name(NamedTuple):
    benchmark: str
    structure: str | None
    method: str | None
    sigma: float | None


def names() -> list[str]:
    """The recipes with published values, and the small ones; nothing is built."""
    listed = ["digits-some", "digits-single"]
    listed += [f"cifar10-16px-resnet8-{structure}-0.25" for structure in ("some", "single")]
    for bench in BENCHMARKS:
        for structure, known in benchmark(bench, None).published.items():
            prefix = f"{bench}-" if structure == "single" else f"{bench}-{structure}-"
            listed += [f"{prefix}{method}-{sigma:.2f}" for method in known for sigma in methods.SIGMAS]
    return listed


def get(
    name: str, *, structure: str | None = None, method: str | None = None, sigma: float | None = None
) -> Recipe:
    """By name, listed or not: every combination that makes sense has one. With another structure, base method
    or sigma the values published for the combination are taken, where there are any."""
    parts = _parse(name)
    if parts is None:
        raise ConfigError("a known recipe", repr(name), suggest(name, [*names(), *BENCHMARKS]))
    structure = structure or parts.structure or "single"
    bench = benchmark(parts.benchmark, parts.sigma if sigma is None else sigma)
    chosen = methods.setting(bench, method or parts.method)
    make = structures.find(structure)
    if make is None:
        remedy = f"choose from: {structures.EXAMPLES} (any number)"
        raise ConfigError("a known structure", repr(structure), remedy)
    prefix = "" if structure == "single" else f"{structure}-"
    full = f"{bench.name}-{prefix}{chosen.method.name}-{bench.sigma:.2f}"
    asked = structure == parts.structure and not (method or sigma)
    return structures.apply(make, bench, chosen, name if asked else full)


def is_recipe(name: str) -> bool:
    return _parse(name) is not None


def _parse(name: str) -> _Name | None:
    bench = next((b for b in BENCHMARKS if name == b or name.startswith(f"{b}-")), None)
    if bench is None:
        return None
    rest = name.removeprefix(bench)
    number = re.search(r"-(\d+\.\d+)$", rest)
    rest = rest[: number.start()] if number else rest
    method = next((m for m in METHODS.names() if rest.endswith(f"-{m}")), None)
    structure = (rest.removesuffix(f"-{method}") if method else rest).removeprefix("-")
    if structure and structures.find(structure) is None:
        return None
    return _Name(bench, structure or None, method, float(number[1]) if number else None)
