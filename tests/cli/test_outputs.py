"""No command removes or overwrites a file that it did not write, and a full disk is a message."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.example import example_run
from tests.studies.small import TEXT

from smoothheads.cli import COMMANDS, main
from smoothheads.models.networks import resnet_cifar
from smoothheads.results import read_log
from smoothheads.studies.results import RowFacts, StudyResults, StudyRow, save

FEW = ["--n0", "20", "--n", "100", "--block", "20", "--first", "2"]
TRAIN = ["--data.subset.first", "60", "--train.epochs", "1", "--train.batch", "32"]
ATTACK = ["--steps", "2", "--draws", "2", "--n", "20", "--radii", "1.0", "--halvings", "1", "--first", "2"]

Command = Callable[[Path, str], list[str]]
"""The arguments, given a folder with a run and other inputs, and where to write."""

INTO_A_FOLDER: dict[str, Command] = {
    "merge": lambda at, out: ["merge", f"{at}/run/ledger-0-of-2", f"{at}/run/ledger-1-of-2", "--out", out],
    "certify": lambda at, out: ["certify", f"{at}/run", *FEW, "--out", out],
    "recertify": lambda at, out: ["recertify", f"{at}/run/ledger-fixed", "--alpha", "0.01", "--out", out],
    "train": lambda _, out: ["train", "digits-single", *TRAIN, "--out", out],
    "export": lambda at, out: [
        *("export", f"{at}/run/ledger-fixed", "--checkpoint", f"{at}/run/checkpoint", "--out", out)
    ],
    "ensemble": lambda at, out: ["ensemble", f"{at}/run", f"{at}/run", "--out", out],
    "import": lambda at, out: [
        *("import", f"{at}/own.pth", "--arch", "resnet8", "--data", "digits"),
        *("--normalize", "none", "--out", out),
    ],
    "report": lambda at, out: ["report", f"{at}/run/ledger-fixed", "--out", out],
    "compare": lambda at, out: [
        *("compare", f"{at}/run/ledger-fixed", f"{at}/run/ledger-fixed", "--out", out)
    ],
    "demo": lambda _, out: ["demo", "--out", out, "--first", "2", "--n", "100"],
    "study": lambda at, out: [
        *("study", f"{at}/study.toml", "--store", f"{at}/store", "--from", f"{at}/kept", "--out", out)
    ],
}
INTO_A_FILE: dict[str, Command] = {
    "predict": lambda at, out: ["predict", f"{at}/run", "test:0", "--n", "20", "--block", "20", "--out", out],
    "export --format onnx": lambda at, out: ["export", f"{at}/run", "--format", "onnx", "--out", out],
    "paper --page": lambda at, out: ["paper", "all", "--from", f"{at}/papers", "--page", out],
    "attack": lambda at, out: [
        *("attack", f"{at}/run", "--ledger", f"{at}/run/ledger-fixed", *ATTACK, "--out", out)
    ],
    "attack --plot": lambda at, out: [
        *("attack", f"{at}/run", "--ledger", f"{at}/run/ledger-fixed", *ATTACK, "--plot", out)
    ],
    "diversity --plot": lambda at, out: [
        *("diversity", f"{at}/run", "--index-samples", "50", "--samples", "20", "--first", "1", "--plot", out)
    ],
}


@pytest.fixture
def at(tmp_path: Path) -> Path:
    """A run with ledgers, a file of weights, and a folder of somebody's own."""
    shutil.copytree(example_run(), tmp_path / "run")
    torch.save({"state_dict": resnet_cifar(8, (1, 8, 8), 10).state_dict()}, tmp_path / "own.pth")
    (tmp_path / "study.toml").write_text(TEXT)
    row = StudyRow("", 0.5, "single", 0, read_log(example_run() / "ledger-fixed"), RowFacts(imported="log"))
    results = StudyResults(name="small", title="Small", arms={"single": "single"}, rows=(row,))
    for place in ("kept", "papers/table3"):
        save(results, tmp_path / place)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    for name in (
        "notes.txt",
        "report.html",
        "certified-accuracy.png",
        "votes.json",
        "manifest.json",
        "study.json",
        "costs.json",
        "x.png",
        "x.md",
        "x.onnx",
        "x.jsonl",
        "x.csv",
    ):
        (foreign / name).write_text("mine")
    return tmp_path


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
    }


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(arguments) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("place", ["foreign", "run", "run/checkpoint", "."])
@pytest.mark.parametrize("command", INTO_A_FOLDER)
def test_what_lies_in_a_folder_is_kept(
    at: Path, command: str, place: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(at / "foreign")
    before = snapshot(at)
    error = refused(INTO_A_FOLDER[command](at, place if place == "." else f"{at}/{place}"), capsys)
    assert "a new or empty folder" in error or "holds a run already" in error
    assert {name: data for name, data in snapshot(at).items() if name != "run/.lock"} == before


@pytest.mark.parametrize("command", INTO_A_FILE)
def test_a_file_of_others_is_kept(at: Path, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = snapshot(at)
    names = {"attack": ("votes", "votes.json"), "predict": ("x.jsonl", "x.csv"), "paper --page": ("x.md",)}
    names |= {"export --format onnx": ("x.onnx",)}
    for name in names.get(command, ("x.png",)):
        error = refused(INTO_A_FILE[command](at, f"{at}/foreign/{name}"), capsys)
        assert "choose another" in error or "use another file" in error
    assert snapshot(at) == before


@pytest.mark.parametrize(
    "content",
    ['{"image": "a.png", "owner": "me"}\n', '{"pictures": 3}', '{"image": 3, "er', "image,class\n", "\n"],
)
@pytest.mark.parametrize("name", ["mine.jsonl", "mine.csv"])
def test_predict_goes_on_with_nothing_but_its_own_answers(
    at: Path, name: str, content: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (at / name).write_text(content)
    refused(INTO_A_FILE["predict"](at, f"{at}/{name}"), capsys)
    assert (at / name).read_text() == content


def test_the_paper_keeps_what_others_wrote(at: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = f"gaussian/some/0.25={at}/run/ledger-fixed"
    command = ["paper", "table3", "--import", log, "--out", f"{at}/foreign"]
    before = snapshot(at)
    assert "foreign/costs.json" in refused(command, capsys)  # somebody else's, which is no measurement
    assert snapshot(at) == before
    (at / "foreign" / "costs.json").unlink()
    (at / "foreign" / "table3").mkdir()
    (at / "foreign" / "table3" / "notes.txt").write_text("mine")
    before = snapshot(at)
    assert "a new or empty folder" in refused(command, capsys)
    assert snapshot(at) == before
    for _ in range(2):  # beside other files, and over its own
        assert main([*command[:-1], f"{at}/mine"]) == 0


def test_a_store_keeps_what_lies_beside_its_folders(at: Path) -> None:
    before = snapshot(at / "foreign")
    small = TEXT.split("[arms.pair]")[0] + "[certify]" + TEXT.split("[certify]")[1]
    (at / "study.toml").write_text(small.replace("seeds = [0, 1]", "seeds = [0]"))
    assert main(["study", f"{at}/study.toml", "--store", f"{at}/foreign", "--workers", "1"]) == 0
    after = snapshot(at / "foreign")
    assert {name: after[name] for name in before} == before
    assert {name.partition("/")[0] for name in after.keys() - before.keys()} == {
        "trained",
        "certified",
        "rows",
    }


READS: dict[str, list[str]] = {
    "info": ["info", "run"],
    "audit": ["audit", "run/ledger-fixed"],
    "threats": ["threats", "run/ledger-fixed", "--linf"],
    "predict": ["predict", "run", "test:0", "--n", "20", "--block", "20"],
    "paper": ["paper", "table3", "--published"],
}


@pytest.mark.parametrize("command", READS)
def test_a_command_that_only_reads_writes_nothing(
    at: Path, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(at)
    before = snapshot(at)
    assert main(READS[command]) == 0
    assert snapshot(at) == before


def test_every_command_is_looked_at() -> None:
    """`push`, `serve`, `board` and `zoo` have tests of their own, and `zoo` writes nothing."""
    looked_at = {name.partition(" ")[0] for name in (*INTO_A_FOLDER, *INTO_A_FILE, *READS)}
    assert looked_at - {"completion"} == COMMANDS.keys() - {"board", "push", "serve", "zoo"}


def test_a_checkpoint_never_takes_the_place_of_another_folder(at: Path) -> None:
    from smoothheads import checkpoint
    from smoothheads.errors import StorageError

    ready = checkpoint.load(at / "run" / "checkpoint")
    before = snapshot(at)
    for place in ("foreign", "run", "run/checkpoint"):
        with pytest.raises(StorageError, match="a new or empty folder"):
            checkpoint.save(at / place, ready.model, ready.config, ready.info)
    assert snapshot(at) == before


@pytest.mark.parametrize("command", ["merge", "export", "report"])
def test_an_empty_current_folder_is_filled(at: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (at / "empty").mkdir()
    monkeypatch.chdir(at / "empty")
    assert main(INTO_A_FOLDER[command](at, ".")) == 0
    assert len(snapshot(Path.cwd())) > 1


@pytest.mark.parametrize("command", ["report", "compare", "recertify"])
def test_a_command_goes_on_with_its_own(at: Path, command: str) -> None:
    for _ in range(2):
        assert main(INTO_A_FOLDER[command](at, f"{at}/out")) == 0


@pytest.fixture
def full(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 kB with next to nothing free; needs the right to mount one."""
    folder = tmp_path / "full"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    try:
        made = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except OSError:
        made = False
    if not made:
        pytest.skip("this system does not let us mount a small file system")
    try:
        (folder / "filler").write_bytes(bytes(60 * 1024))
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("command", [*INTO_A_FOLDER, *INTO_A_FILE])
def test_a_full_disk_is_a_message(
    at: Path, full: Path, command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if command in ("predict", "paper --page"):  # what they write is small
        (full / "more").write_bytes(bytes(4 * 1024))
    endings = {"paper --page": "x.md", "export --format onnx": "x.onnx", "predict": "x.jsonl"}
    out = endings.get(command, "x.png" if "--plot" in command else "out")
    error = refused((INTO_A_FOLDER | INTO_A_FILE)[command](at, f"{full}/{out}"), capsys)
    assert "No space left on device; free some space and run again" in error
    assert not list(full.rglob("*.partial"))
