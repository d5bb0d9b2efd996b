"""Every dialect of the field reads as the same log; everything else is a clear error."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from smoothheads.errors import LedgerError
from smoothheads.results.read import read_log, read_logs

HEAD = "idx\tlabel\tpredict\tradius\tcorrect\ttime"
ROWS = ["0\t3\t3\t0.486\t1\t0:00:16.6", "20\t7\t-1\t0.0\t0\t17.2", "40\t4\t2\t1.91\t0\t0:01:00.5"]
PLAIN = "\n".join([HEAD, *ROWS, ""])


def _write(path: Path, text: str) -> Path:
    path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize(
    "text",
    [
        PLAIN,
        PLAIN.rstrip("\n"),
        PLAIN.replace("\n", "\r\n"),
        "\ufeff" + PLAIN,
        PLAIN + "\n\n",
        "\n".join([HEAD + "\tnA\tpABar", *(row + "\t99\t0.9" for row in ROWS)]),
        "\n".join(["time\t" + HEAD[:-5], *("\t".join([r.split("\t")[5], *r.split("\t")[:5]]) for r in ROWS)]),
        PLAIN.replace("20\t7", "20.0\t7.0"),
    ],
)
def test_dialects(tmp_path: Path, text: str) -> None:
    log = read_log(_write(tmp_path / "noise-0.50.tsv", text))
    assert log.name == "noise-0.50"
    assert log.index.tolist() == [0, 20, 40]
    assert log.prediction.tolist() == [3, -1, 2]
    assert log.radius.tolist() == [0.486, 0.0, 1.91]
    assert log.correct.tolist() == [True, False, False]
    assert log.abstained.tolist() == [False, True, False]
    np.testing.assert_allclose(log.seconds, [16.6, 17.2, 60.5])
    assert log.columns["radius"] == ("0.486", "0.0", "1.91")
    assert (log.sigma, log.alpha, log.n, log.manifest) == (None, None, None, None)


def test_a_running_total_does_not_fool_us(tmp_path: Path) -> None:
    text = "\n".join([HEAD, "0\t3\t3\t0.4\t1\t1", "1\t3\t3\t0.4\t2\t1", "2\t3\t1\t0.4\t2\t1"])
    assert read_log(_write(tmp_path / "log.tsv", text)).correct.tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "an empty file"),
        ("\n \n", "an empty file"),
        (HEAD + "\n", "only a header"),
        ("a,b\n1,2\n", "lacks idx, label"),
        (PLAIN.replace("1.91", "big"), "radius in row 4"),
        (PLAIN.replace("1.91", "nan"), "radius in row 4"),
        (PLAIN.replace("17.2", "soon"), "time in row 3"),
        (PLAIN.replace("20\t7", "20.5\t7"), "idx in row 3"),
        (PLAIN.replace("20\t7", "1e300\t7"), "idx in row 3"),
        (PLAIN.replace("\t0\t17.2", ""), "Row 3 of .* has 4 of 6 columns"),
    ],
)
def test_damage_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(LedgerError, match=message):
        read_log(_write(tmp_path / "log.tsv", text))


def test_the_number_in_a_name_is_no_ending(tmp_path: Path) -> None:
    assert read_log(_write(tmp_path / "sigma_0.25", PLAIN)).name == "sigma_0.25"


def test_a_missing_or_binary_file(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="No such file"):
        read_log(tmp_path / "none.tsv")
    (tmp_path / "model.pth").write_bytes(b"\x80\x02\xff\xfe")
    with pytest.raises(LedgerError, match="is not text"):
        read_log(tmp_path / "model.pth")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text())
def test_arbitrary_text_never_crashes(tmp_path: Path, text: str) -> None:
    path = tmp_path / "log.tsv"
    for content in (text, f"{HEAD}\n{text}", f"{PLAIN}{text}"):
        path.write_bytes(content.encode("utf-8", "surrogatepass"))
        with contextlib.suppress(LedgerError):
            read_log(path)


def test_a_ledger_by_folder_or_by_file(run: Callable[..., Path]) -> None:
    folder = run("some-run")
    for path in (folder, folder / "ledger.tsv"):
        log = read_log(path)
        assert (log.name, len(log), len(log.rows)) == ("some-run", 12, 12)
        assert (log.sigma, log.alpha, log.n, log.n0) == (0.5, 0.001, 1000, 20)


def test_a_ledger_alone_is_a_foreign_log(run: Callable[..., Path], tmp_path: Path) -> None:
    copied = tmp_path / "elsewhere" / "ledger.tsv"
    copied.parent.mkdir()
    copied.write_bytes((run() / "ledger.tsv").read_bytes())
    log = read_log(copied)
    assert (len(log), log.rows, log.sigma) == (12, (), None)
    assert "votes" in log.columns


def test_a_ledger_that_is_being_written(run: Callable[..., Path]) -> None:
    folder = run()
    path = folder / "ledger.tsv"
    path.write_bytes(path.read_bytes()[:-30])
    assert len(read_log(folder)) == 11
    path.write_text(path.read_text().splitlines()[0] + "\n")
    with pytest.raises(LedgerError, match="certified images"):
        read_log(folder)


def test_equal_names_get_their_folders(tmp_path: Path) -> None:
    for name in ("a/x.tsv", "b/x.tsv", "b/y.tsv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        _write(tmp_path / name, PLAIN)
    logs = read_logs([tmp_path / "a" / "x.tsv", tmp_path / "b" / "x.tsv", tmp_path / "b" / "y.tsv"])
    assert [log.name for log in logs] == ["a/x", "b/x", "y"]
