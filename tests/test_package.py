"""What a release says about itself agrees."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import smoothheads

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_version_is_the_same_everywhere() -> None:
    version = re.escape(smoothheads.__version__)
    assert re.search(rf"^version: {version}$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    assert re.search(rf"^## {version} ", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)


def test_documents_install_from_the_clone() -> None:
    """The name is not registered on the package index yet, and every extra that a document names exists."""
    extras = set(PROJECT["project"]["optional-dependencies"])
    for document in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(
            r"^pip install (\S+)|`pip install (\S+)`", document.read_text(), re.MULTILINE
        ):
            what = "".join(target).strip("'")
            assert not what.startswith("smoothheads") or document.name == "CONTRIBUTING.md", document
            named = re.fullmatch(r"\.\[([\w,]+)\]", what)
            assert named is None or set(named[1].split(",")) <= extras, f"{document}: {what}"


def test_container_has_all_that_the_wheel_is_made_of() -> None:
    """The build fails without the folders that pyproject.toml names."""
    wheel = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = (ROOT / "Dockerfile").read_text(), (ROOT / ".dockerignore").read_text()
    for folder in [*(path.split("/")[0] for path in wheel["packages"]), *wheel["force-include"]]:
        assert (ROOT / folder).is_dir()
        assert f"COPY {folder} " in copied[0]
        assert f"!{folder}\n" in copied[1]
