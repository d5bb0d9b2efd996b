"""The files of the measured study can be read, and none of its arms is trained on what it is certified on."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothheads.cli import main
from smoothheads.studies import experiments
from smoothheads.studies.parse import read_study

FOLDER = Path(__file__).parents[2] / "benchmarks" / "paper"


@pytest.mark.parametrize("name", ["map", "map-more", "map-consistency", "main"])
def test_the_studies_can_be_read(name: str) -> None:
    study = read_study(FOLDER / f"{name}.toml")
    assert (study.images.split == "train") == (name != "main")
    assert not {0, 1, 2} & set(study.seeds) or name != "main"
    if name == "main":
        assert (study.images.offset, study.images.every) == (10, 20)


def test_the_scale_trains_the_networks_of_the_main_study() -> None:
    main, scale = read_study(FOLDER / "main.toml"), experiments.scale(str(FOLDER / "scale.toml"))
    table = experiments.study(experiments.get("table7"), scale)
    for structure in ("single", "heads", "some"):
        for base in ("gaussian", "consistency"):
            ours = main.run_config(main.arm(f"{base}-{structure}"), "", 0.25, 10)
            assert ours == table.run_config(table.arm(f"{base} {structure}"), "", 0.25, 10)


def test_the_page_follows_from_what_was_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every number in docs/paper.md: made again from benchmarks/paper, it is the same to the byte."""
    monkeypatch.chdir(FOLDER.parents[1])
    before = Path("docs/paper.md").read_text()
    try:
        assert main(["paper", "all", "--from", "benchmarks/paper", "--page", "docs/paper.md"]) == 0
        assert Path("docs/paper.md").read_text() == before
    finally:
        Path("docs/paper.md").write_text(before)
