"""A report in a folder: the page, and the plots as PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from smoothheads.files import has_stamp, reserve
from smoothheads.report import plots
from smoothheads.report.html import Gallery, write_page
from smoothheads.results.compare import Comparison, compare
from smoothheads.results.results import Results

PAGE = "report.html"
TITLE = "Certified robustness"


def report(
    *sources: Results | Path | str,
    out: Path | str,
    radii: Sequence[float] | None = None,
    align: bool = False,
    title: str = TITLE,
) -> Path:
    """Writes the report of results, ledgers or anybody's logs, and gives back the page; the first is the
    baseline of the differences."""
    claim_folder(Path(out))
    return write(compare(*sources, radii=radii, align=align), Path(out), title)[0]


def claim_folder(folder: Path) -> None:
    """Raises StorageError unless a report may be written there; worth asking before a long run."""
    reserve(folder, lambda there: has_stamp(there / PAGE))


def write(
    comparison: Comparison, folder: Path | str, title: str = TITLE, gallery: Gallery = ()
) -> list[Path]:
    """The page and the plots; what they are is said by their names."""
    folder = Path(folder)
    write_page(folder / PAGE, comparison, title=title, gallery=gallery)
    figures = {"certified-accuracy.png": plots.certified_accuracy(comparison.logs)}
    if any(log.label_probability() is not None for log in comparison.logs):
        figures["label-probability.png"] = plots.label_probability(comparison.logs)
    for name, figure in figures.items():
        plots.save(figure, folder / name)
    return [folder / PAGE, *(folder / name for name in figures)]
