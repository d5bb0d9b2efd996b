"""Links between documents lead somewhere, the index has them all, and notebooks and commands run."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from smoothheads.cli import COMMANDS, main

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def text_of(document: Path) -> str:
    """Returns the prose of a document: in code, brackets mean other things."""
    text = document.read_text(encoding="utf-8")
    if document.suffix == ".ipynb":
        cells = (cell for cell in json.loads(text)["cells"] if cell["cell_type"] == "markdown")
        text = "\n\n".join("".join(cell["source"]) for cell in cells)
    return re.sub(r"```.*?```|`[^`\n]*`", "", text, flags=re.DOTALL)


def anchors(document: Path) -> set[str]:
    """Returns the anchors of its headings, as code hosts and the site write them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("document", [*DOCUMENTS, *NOTEBOOKS], ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text_of(document)):
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), target
        assert ROOT in path.parents, f"{target} lies outside the project"
        assert not anchor or anchor in anchors(path), target


def test_the_index_has_every_document() -> None:
    docs = ROOT / "docs"
    listed = {Path("index.md")}
    for index in (docs / "index.md", docs / "decisions" / "index.md"):
        links = re.findall(r"\]\(([\w/-]+\.(?:md|ipynb))\)", index.read_text(encoding="utf-8"))
        listed |= {(index.parent / link).relative_to(docs) for link in links}
    there = {path.relative_to(docs) for kind in ("*.md", "*.ipynb") for path in docs.rglob(kind)}
    assert listed == there, "docs/index.md lists what there is, for code hosts and for the site alike"


def test_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "smoothheads"
    names = {path.name for path in package.rglob("*.py")}
    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert (package / name).is_file() if "/" in name else name in names, name
    folders = re.findall(r"^\*\*`(\w+)`\*\*|\. \*\*`(\w+)`\*\*", text, re.MULTILINE)
    told = {name for pair in folders for name in pair if name}
    assert told <= {path.name for path in package.iterdir()}


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs(notebook: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    cells = [cell for cell in json.loads(notebook.read_text())["cells"] if cell["cell_type"] == "code"]
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in cells:
            exec(compile("".join(cell["source"]), notebook.name, "exec"), scope)
    # What the page shows was made by these cells: all of them were run, in this order.
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))


def commands() -> Iterator[tuple[str, str]]:
    """Yields the commands in the documents, with lines that end in a backslash joined."""
    for document in DOCUMENTS:
        if document.name == "extending.md":  # its commands need its package; test_extending.py runs them
            continue
        text = document.read_text(encoding="utf-8").replace("\\\n", " ")
        for line in re.findall(r"^smoothheads ([a-z].*)$", text, re.MULTILINE):
            yield str(document.relative_to(ROOT)), line


@functools.cache
def options_of(*command: str) -> frozenset[str]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    return frozenset(re.findall(r"(?<![\w-])-{1,2}[a-z][\w.-]*", out.getvalue()))


def test_documented_commands_have_these_options() -> None:
    for document, line in commands():
        words = shlex.split(line, comments=True)
        if words[0] not in COMMANDS:
            continue  # prose
        command = words[:1]
        if words[0] == "train":  # its options depend on the recipe, the method and the data set
            command.append(words[1].replace("RECIPE", "digits-some"))
            for kind in {"--method", "--data.name"} & set(words):
                command += [kind, words[words.index(kind) + 1]]
        used = {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}
        assert used <= options_of(*command), f"{document}: smoothheads {line}"


def test_translated_options_exist() -> None:
    """Every option of ours in the tables of docs/coming-from.md exists."""
    tables = re.findall(r"^\|[^|]*\|([^|]*)\|", (ROOT / "docs" / "coming-from.md").read_text(), re.MULTILINE)
    ours = {option for cell in tables for option in re.findall(r"`(--[\w.-]+)", cell)}
    known = options_of("certify") | options_of("import")
    for method in ("gaussian", "consistency", "smoothmix", "smoothadv"):
        known |= options_of("train", "cifar10-resnet110-some", "--method", method)
    assert ours <= known | {"--objective.method."}
