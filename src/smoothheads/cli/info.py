"""smoothheads info ..."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from smoothheads import recipes
from smoothheads.cli.common import parse, print_json
from smoothheads.config import ModelConfig, to_dict
from smoothheads.errors import ConfigError, one_of

DESCRIPTION = """Facts about recipes, networks and checkpoints.

  smoothheads info recipes                                    all recipes
  smoothheads info recipes cifar10 some                       those with these words in their names
  smoothheads info digits-some                                one recipe, every field
  smoothheads info runs/some                                  a checkpoint: settings, hashes, versions
  smoothheads info --arch resnet110 --heads 5 --cut stage2    parameters and operations of a network"""

_INPUT = {
    "lenet": (1, 28, 28),
    "resnet18": (3, 224, 224),
    "resnet34": (3, 224, 224),
    "resnet50": (3, 224, 224),
}


@dataclass(frozen=True, kw_only=True)
class Info:
    what: tyro.conf.Positional[str] = ""
    """`recipes`, the name of a recipe, or a checkpoint folder."""
    words: tyro.conf.Positional[tuple[str, ...]] = ()
    """After `recipes`: what their names must contain."""
    arch: str | None = None
    """Architecture to count, e.g. resnet110."""
    heads: int = 1
    cut: str | None = None
    """Where the trunk ends (default: stage2, layer3 or convs, by the architecture)."""
    classes: int | None = None
    """Default: 1000 for the ImageNet networks, otherwise 10."""
    json: bool = False
    """Print JSON."""


def main(arguments: list[str]) -> None:
    args = parse(Info, arguments or ["--help"], default=Info(), prog="info", description=DESCRIPTION)
    listing = args.arch is None and args.what in ("", "recipes")
    if args.words and not listing:
        raise ConfigError("one recipe or folder", f"also {args.words[0]!r}", "ask for one at a time")
    if args.arch is not None:
        facts = network(args)
    elif listing:
        facts = matching(args.words)
    elif Path(args.what).is_dir():
        facts = checkpoint(Path(args.what))
    elif args.what in recipes.all_recipes():
        recipe = recipes.get(args.what)
        facts = {"summary": recipe.summary, "source": recipe.source} | to_dict(recipe.config)
    else:
        raise one_of("recipe or checkpoint folder", args.what, [*recipes.all_recipes(), "recipes"])
    if args.json:
        print_json(facts)
        return
    for line in _lines(_families(facts) if listing else facts):
        print(line)


def matching(words: tuple[str, ...]) -> dict[str, str]:
    """Recipes whose names contain all words, with their summaries."""
    found = {name: r.summary for name, r in recipes.all_recipes().items() if all(w in name for w in words)}
    if not found:
        raise ConfigError(
            f"recipes with {' and '.join(map(repr, words))} in their names",
            "none",
            "see `smoothheads info recipes`",
        )
    return found


def _families(summaries: dict[str, str]) -> dict[str, str]:
    """One line for recipes that differ in sigma alone: `NAME-0.25 0.50 1.00`."""
    sigmas: dict[tuple[str, str], list[str]] = {}
    for name, summary in summaries.items():
        stem, _, sigma = name.rpartition("-")
        sigmas.setdefault((stem, summary), []).append(sigma)
    return {f"{stem}-{' '.join(found)}": summary for (stem, summary), found in sigmas.items()}


def network(args: Info) -> dict[str, Any]:
    """Cost of one forward pass of one image; gmacs_paper counts as the paper does."""
    from smoothheads.models import DEFAULT_CUTS, build, cost

    arch = args.arch or ""
    imagenet = _INPUT.get(arch, (0, 0, 0))[1] == 224
    config = ModelConfig(arch=arch, heads=args.heads, cut=args.cut or DEFAULT_CUTS.get(arch, ""))
    shape = _INPUT.get(arch, (3, 32, 32))
    classes = args.classes or (1000 if imagenet else 10)
    channels = shape[0]
    model = build(config, shape=shape, classes=classes, mean=(0.5,) * channels, std=(0.5,) * channels, seed=0)
    found = cost(model, shape)
    return to_dict(config) | {
        "input": list(shape),
        "classes": classes,
        "params": found.params,
        "gmacs": round(found.macs / 1e9, 4),
        "gmacs_paper": round(found.macs_paper / 1e9, 4),
        "flops": found.flops,
    }


def checkpoint(folder: Path) -> dict[str, Any]:
    from smoothheads.runs.layout import open_checkpoint

    ready = open_checkpoint(folder)
    return {"data": to_dict(ready.info), "run": to_dict(ready.config), "manifest": ready.manifest}


def _lines(facts: dict[str, Any], indent: str = "") -> list[str]:
    width = max((len(key) for key in facts), default=0)
    lines = []
    for key, value in facts.items():
        if isinstance(value, dict):
            lines += [f"{indent}{key}:", *_lines(value, indent + "  ")]
        else:
            shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else value
            lines.append(f"{indent}{key:<{width}}  {shown}")
    return lines
