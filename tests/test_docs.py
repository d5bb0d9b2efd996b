"""Links between documents lead somewhere, and the site has them all."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")])


def text_of(document: Path) -> str:
    """Without code, where brackets mean other things."""
    return re.sub(r"```.*?```|`[^`\n]*`", "", document.read_text(encoding="utf-8"), flags=re.DOTALL)


def anchors(document: Path) -> set[str]:
    """Of its headings, as hosts and the site write them."""
    headings = re.findall(r"^#+ (.+)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text_of(document)):
        name, _, anchor = target.partition("#")
        path = (document.parent / name).resolve() if name else document
        assert path.exists(), target
        assert ROOT in path.parents, f"{target} lies outside the project"
        assert not anchor or anchor in anchors(path), target


def test_the_site_has_every_document() -> None:
    docs = ROOT / "docs"
    listed = set()
    for index in (docs / "index.md", docs / "decisions" / "index.md"):
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", index.read_text(encoding="utf-8"), re.DOTALL):
            entries = [line for line in tree.splitlines() if line and not line.startswith(":")]
            listed |= {path.relative_to(docs) for name in entries for path in index.parent.glob(f"{name}.md")}
    there = {path.relative_to(docs) for path in docs.rglob("*.md")}
    assert listed | {Path("index.md")} == there, "docs/index.md lists what the site has"


def test_the_architecture_names_files_that_exist() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    package = ROOT / "src" / "smoothheads"
    names = {path.name for path in package.rglob("*.py")}
    for name in re.findall(r"`([\w/]+\.py)`", text):
        assert (package / name).is_file() if "/" in name else name in names, name
    folders = re.findall(r"^\*\*`(\w+)`\*\*|\. \*\*`(\w+)`\*\*", text, re.MULTILINE)
    told = {name for pair in folders for name in pair if name}
    assert told <= {path.name for path in package.iterdir()}


def test_the_site_begins_as_the_readme_does() -> None:
    """The front page takes the commands from there, between these words."""
    page, readme = ((ROOT / name).read_text(encoding="utf-8") for name in ("docs/index.md", "README.md"))
    for words in re.findall(r'^:(?:start-after|end-before): "(.*)"$', page, re.MULTILINE):
        assert words in readme
