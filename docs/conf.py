"""The site: guides in Markdown, and the reference from the docstrings. `make docs` builds it into site/."""

from __future__ import annotations

import re
from typing import Any

import smoothheads

project = "smoothheads"
author = "The smoothheads developers"
copyright = f"2026, {author}"
release = version = smoothheads.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"smoothheads {release}"
html_show_sphinx = False
html_copy_source = False

myst_heading_anchors = 3
myst_enable_extensions = ["deflist"]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autodoc_default_options = {"members": True, "show-inheritance": True}
autodoc_inherit_docstrings = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", _as_markdown)


def _as_markdown(*event: Any) -> None:
    """Docstrings are prose with `code` in it, as in Markdown; reStructuredText would read signs into it."""
    lines: list[str] = event[-1]
    prose_and_code = "\n".join(lines).split("`")
    parts = [
        rf"\ ``{part}``\ " if place % 2 else re.sub(r"([*|]|_\b)", r"\\\1", part)
        for place, part in enumerate(prose_and_code)
    ]
    lines[:] = "".join(parts).split("\n")
