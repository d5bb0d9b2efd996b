"""The site: guides in Markdown, and the reference from the docstrings. `make docs` builds it into site/."""

from __future__ import annotations

import re
from typing import Any

import smoothheads

project = "smoothheads"
author = "The smoothheads developers"
copyright = f"2026, {author}"
release = version = smoothheads.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
# Notebooks are shown as they were run (`make notebooks`).
nb_execution_mode = "off"

html_theme = "furo"
html_title = f"smoothheads {release}"
html_show_sphinx = False
html_copy_source = False

myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_inherit_docstrings = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"


def setup(app: Any) -> None:
    app.connect("source-read", _for_the_site)
    app.connect("autodoc-process-docstring", _as_markdown)


def _for_the_site(app: Any, name: str, source: list[str]) -> None:
    """Adapts a page that is written for code hosts: the site has no files beside docs/, but a sidebar."""
    if app.env.doc2path(name).suffix != ".md":
        return
    text = re.sub(r"(?<!!)\[([^\]]+)\]\((?:\.\./)+(?:[A-Z]\w+\.md|benchmarks/[^)]*)\)", r"\1", source[0])
    if name.endswith("index"):
        # Every section of an index becomes a part of the sidebar.
        for section in re.split(r"^#+ ", text, flags=re.MULTILINE)[1:]:
            title, _, body = section.partition("\n")
            if pages := re.findall(r"\]\(([\w/-]+)\.(?:md|ipynb)\)", body):
                contents = "\n".join([":hidden:", f":caption: {title}", "", *pages])
                text += f"\n```{{toctree}}\n{contents}\n```\n"
    source[0] = text


def _as_markdown(*event: Any) -> None:
    """Docstrings are prose with `code` in it, as in Markdown; reStructuredText would read signs into it."""
    lines: list[str] = event[-1]
    prose_and_code = "\n".join(lines).split("`")
    parts = [
        rf"\ ``{part}``\ " if place % 2 else re.sub(r"([*|]|_\b)", r"\\\1", part)
        for place, part in enumerate(prose_and_code)
    ]
    lines[:] = "".join(parts).split("\n")
