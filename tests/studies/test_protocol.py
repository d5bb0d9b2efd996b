"""The files of the measured study can be read, and none of its arms is trained on what it is certified on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from smoothheads.cli import main
from smoothheads.studies import claims, costs, experiments
from smoothheads.studies.page import FINDINGS, load_all
from smoothheads.studies.results import RowFacts, Stack, load
from smoothheads.studies.spec import read_study
from smoothheads.studies.statistics import gains

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "benchmarks" / "paper"


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
    """Every number in docs/paper-small.md: made again from benchmarks/paper, it is the same to the byte."""
    monkeypatch.chdir(ROOT)
    before = Path("docs/paper-small.md").read_text()
    try:
        assert main(["paper", "all", "--from", "benchmarks/paper", "--page", "docs/paper-small.md"]) == 0
        assert Path("docs/paper-small.md").read_text() == before
    finally:
        Path("docs/paper-small.md").write_text(before)


def test_a_stranger_reads_the_rows_as_the_page_of_formats_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    section = Path("docs/formats.md").read_text().partition("## Results of a study")[2]
    exec(section.partition("```python\n")[2].partition("```")[0], {})
    printed = capsys.readouterr().out.splitlines()
    first = load(FOLDER / "main").rows[:5]
    assert printed == [
        f"{row.arm} {row.sigma} {row.seed} {round(Stack({0: row}).acr.value, 4)}" for row in first
    ]
    text = "".join(section.partition("## Noise")[0].split("|"))
    described = set(re.findall(r"`(\w+)`", text))
    assert {each.name for each in fields(RowFacts)} <= described


def test_what_people_wrote_quotes_what_was_measured() -> None:
    """Every `value [low, high]` in the findings and on the page of the paper is a gain or ratio of the saved
    results, to as many digits as it has."""
    known = list(measured_intervals())
    # The numbers from published logs have a test of their own, as the logs are not in the repository.
    page = re.sub(r"(?m)^\| (Gaussian|Consistency|SmoothMix) \|.*$", "", (ROOT / "docs/paper.md").read_text())
    for text in (page, (FOLDER / FINDINGS).read_text()):
        quoted = re.findall(QUOTED, text)
        assert quoted
        for numbers in quoted:
            assert any(agrees(numbers, each) for each in known), numbers


NUMBER = r"[+-]?\d+\.\d+"
QUOTED = rf"({NUMBER})\s+\[({NUMBER}),\s+({NUMBER})\]"


def agrees(quoted: tuple[str, ...], known: tuple[float, ...]) -> bool:
    return all(
        abs(float(text) - value) <= 0.5000001 * 10 ** -len(text.partition(".")[2])
        for text, value in zip(quoted, known, strict=True)
    )


def measured_intervals() -> Iterator[tuple[float, float, float]]:
    found, ratios = load_all(FOLDER), costs.load(FOLDER)
    for study in found.values():
        for *_, gain in gains(study):
            yield (gain.value, *gain.interval)
    for claim in claims.all_claims().values():
        for item in claims.evidence(claim, found.get(claim.where, claims.NOTHING), {}):
            yield (item.gain.value, *item.gain.interval)
    assert ratios is not None
    for ratio in ratios.ratios().values():
        yield (ratio.median, ratio.low, ratio.high)
