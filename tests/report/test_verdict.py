from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.example import example_run

import smoothheads as sh
from smoothheads.report.html import page, report
from smoothheads.report.words import verdict
from smoothheads.results.compare import compare
from smoothheads.results.results import Results

Make = Callable[..., Results]


def test_the_verdict_is_made_from_the_numbers(make_log: Make) -> None:
    one, other, against, scope = verdict(compare([make_log("a"), make_log("b", 20)], radii=[0, 0.5]))
    assert one.startswith("a: 75.0 % of 40 images are classified correctly and certified")
    assert other.startswith("b: 50.0 %")
    assert "b against a: the average certified radius is smaller, -0." in against
    assert "certified accuracy is lower at radius 0" in against
    assert "do not cover training again" in scope


def test_a_difference_under_noise_is_told_too(make_log: Make) -> None:
    better, worse = make_log("a"), make_log("b", 20)
    found = compare([better, worse], radii=[0]).differences[0]
    assert found.noisy_accuracy is not None
    assert found.noisy_accuracy.differs
    points = f"{abs(100 * found.noisy_accuracy.difference):.1f} points"
    assert f"{points} fewer of the noisy samples" in " ".join(verdict(compare([better, worse], radii=[0])))
    assert f"{points} more of the noisy samples" in " ".join(verdict(compare([worse, better], radii=[0])))


def test_no_difference_is_said_so(make_log: Make) -> None:
    *_, against, _ = verdict(compare([make_log("a"), make_log("b")], radii=[0]))
    assert "these images show no difference" in against
    assert "certified accuracy differs at no radius" in against


def test_logs_that_were_not_certified_alike_are_read_with_care(make_log: Make) -> None:
    *_, against, _ = verdict(compare([make_log("a"), replace(make_log("b"), sigma=1.0)], radii=[0]))
    assert "not certified alike" in against


def test_the_page_begins_with_a_certificate_and_the_verdict(make_log: Make) -> None:
    comparison = compare([make_log()])
    text = page(comparison, title="t")
    assert (
        text.index("What a certificate is")
        < text.index("class=verdict")
        < text.index("Certified accuracy</h2>")
    )
    assert verdict(comparison)[0] in text
    assert "1,000 noisy copies" in text


def test_report_and_audit_in_python(tmp_path: Path) -> None:
    assert sh.audit(example_run() / "ledger-fixed").sound
    path = report(example_run() / "ledger-fixed", out=tmp_path / "out")
    assert report(sh.read_log(example_run() / "ledger-fixed"), out=tmp_path / "out") == path
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "report.html",
        "certified-accuracy.png",
        "label-probability.png",
    }


def test_a_log_without_votes_and_sigma_has_no_empty_plot(tmp_path: Path) -> None:
    log = tmp_path / "log.tsv"
    log.write_text("idx\tlabel\tpredict\tradius\tcorrect\ttime\n0\t1\t1\t0.5\t1\t0:00:01\n")
    report(log, out=tmp_path / "out")
    assert not (tmp_path / "out" / "label-probability.png").exists()


def test_reports_need_no_torch(tmp_path: Path) -> None:
    ledger, out = example_run() / "ledger-fixed", tmp_path / "out"
    program = (
        "import sys; from smoothheads.cli import main; "
        f"code = main(['report', {str(ledger)!r}, '--out', {str(out)!r}]); "
        "sys.exit(code or 10 * ('torch' in sys.modules))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)


def test_files_are_written_although_nobody_reads_the_tables(tmp_path: Path) -> None:
    """As `report LEDGER --out DIR | head` does."""
    command = [sys.executable, "-m", "smoothheads", "report", str(example_run() / "ledger-fixed")]
    with subprocess.Popen([*command, "--out", str(tmp_path / "out")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.close()
    assert (tmp_path / "out" / "report.html").is_file()
    assert (tmp_path / "out" / "certified-accuracy.png").is_file()
