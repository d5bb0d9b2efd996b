"""smoothheads info ..."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from smoothheads import recipes
from smoothheads.cli.common import ResultCommand, image_size, print_json, say
from smoothheads.config import load_json, to_dict
from smoothheads.errors import one_of
from smoothheads.hub import local
from smoothheads.models.architectures import ARCHITECTURES
from smoothheads.models.config import ModelConfig
from smoothheads.objectives.method import METHODS


@dataclass(frozen=True, kw_only=True)
class InfoCommand(ResultCommand):
    """Show facts about recipes, methods, networks, checkpoints and ledgers.

      smoothheads info recipes                                    the named recipes
      smoothheads info digits-some                                one recipe: sources, options, every setting
      smoothheads info methods                                    base methods, those of plugins too
      smoothheads info architectures                              networks that can be built by name
      smoothheads info data                                       data sets, and layouts of folders and files
      smoothheads info plugins                                    components of other packages, and errors
      smoothheads info runs/some                                  a checkpoint: settings, hashes, versions
      smoothheads info runs/some/ledger                           a ledger: what was certified, and how
      smoothheads info resnet110 --heads 5 --cut stage2           parameters and operations of a network

    Options are for the network that the first argument names."""

    what: tyro.conf.Positional[str]
    """`recipes`, `methods`, `architectures`, `data`, `plugins`, a recipe, method or architecture by its name,
    or the folder of a run, a checkpoint or a ledger."""
    heads: int = 1
    """Number of heads (the paper's L)."""
    cut: str | None = None
    """Where the trunk ends (default: before the last stage)."""
    classes: int | None = None
    """Number of classes (default: what the architecture was made for)."""

    def run(self) -> None:
        # The name of an architecture counts it, unless a folder has that name.
        if self.what in ARCHITECTURES.names() and not Path(self.what).is_dir():
            facts = network(self.what, self.heads, self.cut, self.classes)
        else:
            facts = LISTS[self.what]() if self.what in LISTS else about(self.what)
        if self.json:
            print_json(facts)
            return
        for line in _lines(facts):
            print(line)
        if self.what == "recipes":
            say("Their options, such as --method and --sigma: smoothheads train RECIPE --help")
        for registry in (METHODS, ARCHITECTURES):
            if self.what == f"{registry.kind}s":
                for name, why in registry.failures.items():
                    say(f"The plugin {name} could not be loaded: {why}")


def named_recipes() -> dict[str, Any]:
    """Returns the summaries of the recipes."""
    return {name: recipes.find(name).summary for name in recipes.names()}


def methods() -> dict[str, Any]:
    """Returns the base methods with the first line of their description."""
    return {name: _first_line(method) for name, method in METHODS.items()}


def data() -> dict[str, Any]:
    """Returns the data sets with the first line of their description."""
    from smoothheads.data import DATASETS

    return {name: _first_line(dataset) for name, dataset in DATASETS.items()}


def _first_line(documented: object) -> str:
    return (documented.__doc__ or "").partition("\n")[0]


def architectures() -> dict[str, Any]:
    """Returns the networks that can be built by name, with their usual cut."""
    return {
        name: f"cut {arch.cut}, made for {image_size(arch.image)}" for name, arch in ARCHITECTURES.items()
    }


def plugins() -> dict[str, Any]:
    """Returns the components of other packages by kind, and why those that are broken could not be loaded."""
    from smoothheads.certify.budgets import BUDGETS
    from smoothheads.certify.engines import ENGINES
    from smoothheads.data import DATASETS
    from smoothheads.models.aggregate import AGGREGATIONS
    from smoothheads.noise import NOISES

    found = {}
    for registry in (METHODS, ARCHITECTURES, DATASETS, NOISES, BUDGETS, ENGINES, AGGREGATIONS):
        broken = {name: f"could not be loaded: {why}" for name, why in registry.failures.items()}
        if known := dict.fromkeys(registry.plugins, "loaded") | broken:
            found[registry.kind] = known
    return found or {"plugins": "none is installed: docs/extending.md shows how to write one"}


LISTS = {
    "recipes": named_recipes,
    "methods": methods,
    "architectures": architectures,
    "data": data,
    "plugins": plugins,
}


def about(what: str) -> dict[str, Any]:
    """Returns the facts about a recipe or method by its name, or about what is in a folder."""
    folder = local(what)
    if (folder / "ledger.tsv").is_file():
        return ledger(folder)
    if folder.is_dir():
        return checkpoint(folder)
    if what in recipes.names():
        recipe = recipes.find(what)
        return {
            "summary": recipe.summary,
            "source": recipe.source,
            "options": {name: parameter.default for name, parameter in recipe.parameters.items()},
            "methods": {name: published.source for name, published in recipe.methods.items()},
        } | to_dict(recipe())
    if what in METHODS.names():
        method = METHODS.get(what)()
        return {"summary": method.__doc__} | to_dict(method)
    known = [*recipes.names(), *METHODS.names(), *ARCHITECTURES.names(), *LISTS]
    raise one_of("recipe, method, architecture, or folder of a run, a checkpoint or a ledger", what, known)


def network(name: str, heads: int, cut: str | None, classes: int | None) -> dict[str, Any]:
    """Returns the cost of one forward pass of one image; gmacs_paper counts as the paper does.

    Args:
        name: The architecture.
        heads: Number of heads (the paper's L).
        cut: Where the trunk ends; None takes the usual place.
        classes: Number of classes; None takes those that the architecture was made for.
    """
    from smoothheads.models import build
    from smoothheads.models.cost import cost, parts

    arch = ARCHITECTURES.get(name)
    config = ModelConfig(arch=arch.name, heads=heads, cut=cut or arch.cut)
    shape, classes, half = arch.image, classes or arch.classes, (0.5,) * arch.image[0]
    model = build(config, shape=shape, classes=classes, mean=half, std=half, seed=0)
    found, counted = cost(model, shape), parts(model)
    return to_dict(config) | {
        "input": list(shape),
        "classes": classes,
        "params": found.params,
        "gmacs": round(found.macs / 1e9, 4),
        "gmacs_paper": round(found.macs_paper / 1e9, 4),
        "flops": found.flops,
        "parts": to_dict(counted)
        | {
            "head_share_of_params": round(counted.head_share_of_params, 4),
            "head_share_of_layers": round(counted.head_share_of_layers, 4),
        },
    }


def checkpoint(folder: Path) -> dict[str, Any]:
    """Returns the settings and hashes of a checkpoint, or the settings of a run that has none yet."""
    from smoothheads.checkpoint import WEIGHTS
    from smoothheads.runs.models import CHECKPOINT, CONFIG, open_checkpoint

    finished = (folder / CHECKPOINT).is_dir() or (folder / WEIGHTS).exists()
    if (folder / CONFIG).is_file() and not finished:
        return {"unfinished run": load_json(folder / CONFIG)}
    loaded = open_checkpoint(folder)
    return {"data": to_dict(loaded.info), "run": to_dict(loaded.config), "manifest": loaded.manifest}


def ledger(folder: Path) -> dict[str, Any]:
    """Returns the manifest of a ledger and its number of rows."""
    rows = len((folder / "ledger.tsv").read_bytes().splitlines()) - 1
    return {"rows": rows, "manifest": load_json(folder / "manifest.json")}


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
