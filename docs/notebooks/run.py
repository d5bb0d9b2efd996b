"""Runs all notebooks again, or those that are named, and keeps what they show (`make notebooks`)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

names = sys.argv[1:] or sorted(Path(__file__).parent.glob("*.ipynb"))
for path in names:
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        # Without the times of the cells, so that only what changed differs.
        client = NotebookClient(notebook, record_timing=False, resources={"metadata": {"path": folder}})
        client.execute()
    nbformat.write(notebook, path)
