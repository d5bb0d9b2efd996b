"""One word per thing: no two classes of the package share a name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import smoothheads

SOURCE = Path(smoothheads.__file__).parent


def test_no_two_classes_share_a_name() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    # serve/schemas.py has the same concepts as JSON, under the same names.
    for file in (file for file in SOURCE.rglob("*.py") if file.name != "schemas.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(file.relative_to(SOURCE).as_posix())
    assert len(homes) > 200
    assert {name: files for name, files in homes.items() if len(files) > 1} == {}
