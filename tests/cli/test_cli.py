"""The command line as a new user meets it: answers, messages, exit codes; never a traceback."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from smoothheads.cli import COMMANDS, format_warning, main
from smoothheads.data import load_test, named

ROOT = Path(__file__).parents[2]
SMALL = [
    "--data.subset.first", "80", "--train.epochs", "1", "--train.batch", "32", "--model.heads", "2",
]  # fmt: skip
FEW = ["--n0", "20", "--n", "100", "--block", "20", "--first", "4"]


@pytest.fixture(scope="module")
def trained(trained_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shutil.copytree(trained_run, tmp_path_factory.mktemp("cli") / "run")


@pytest.fixture(scope="module")
def ledger(trained: Path) -> Path:
    assert main(["certify", str(trained), *FEW]) == 0
    return trained / "ledger"


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Exit code 2 and one message, which is returned."""
    assert main(list(arguments)) == 2
    message = capsys.readouterr().err.strip().splitlines()[-1]
    assert message.startswith("smoothheads: ")
    return message


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert len(capsys.readouterr().out) > 300


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys; from smoothheads.cli import main; main(['--help']); print(*sys.modules, file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr.split()
    assert not {"torch", "numpy", "scipy", "matplotlib", "tyro"} & set(loaded)


@pytest.mark.parametrize(
    "command", ["paper", "paper table3 --published", "paper table7 --from benchmarks/paper"]
)
def test_what_is_only_shown_needs_no_torch(command: str) -> None:
    code = (
        f"import sys; from smoothheads.cli import main; code = main({command.split()!r}); "
        "sys.exit(code or 10 * bool({'torch', 'matplotlib'} & sys.modules.keys()))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, cwd=ROOT)


def test_unknown_command_and_recipe_suggest_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert "did you mean 'certify'?" in fails(capsys, "certfy")
    assert "did you mean 'digits-some'?" in fails(capsys, "train", "digit-some")
    assert "The first argument must be a recipe" in fails(capsys, "train", "--train.epochs", "3")


def test_train_and_certify_print_their_answers(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(ledger), "--json"]) == 0
    tables = json.loads(capsys.readouterr().out)
    assert tables
    assert main(["report", str(ledger), str(ledger), "--format", "markdown"]) == 0
    assert "ACR" in capsys.readouterr().out


def test_report_writes_the_page_and_the_plots(ledger: Path, tmp_path: Path) -> None:
    assert main(["report", str(ledger), "--out", str(tmp_path)]) == 0
    assert {p.name for p in tmp_path.iterdir()} == {
        "report.html",
        "certified-accuracy.png",
        "label-probability.png",
    }


def digit_file(path: Path) -> Path:
    pixels = load_test(named("digits")).image(0)[0]
    Image.fromarray((pixels.astype(np.int64) * 255 // 16).astype(np.uint8)).save(path)
    return path


def test_predict_answers_for_image_files(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = digit_file(tmp_path / "digit.png")
    options = ["--n0", "20", "--n", "100", "--block", "20"]
    assert main(["predict", str(trained), str(image), "--json", "--radius", *options]) == 0
    answer = json.loads(capsys.readouterr().out)[0]
    assert answer["n"] == 100
    assert 0 <= float(answer["radius"]) < 5
    assert main(["predict", str(trained), str(image), *options]) == 0
    assert "digit.png: " in capsys.readouterr().out


def test_info_counts_the_papers_network(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "resnet110", "--heads", "5", "--cut", "stage2", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert main(["info", "resnet110", "--heads", "5", "--cut", "stage2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == facts
    assert facts["params"] == 6_995_138
    assert facts["gmacs_paper"] == 0.5937
    assert facts["gmacs"] == 0.5887
    assert facts["flops"] == pytest.approx(1.1774e9, rel=1e-4)


def test_info_shows_recipes_and_checkpoints(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "recipes"]) == 0
    assert "cifar10-resnet110-some " in capsys.readouterr().out
    assert main(["info", str(trained), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["model"]["heads"] == 2
    assert "did you mean" in fails(capsys, "info", "digits-sum")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--n", "5"], "n = 5 is too small for alpha = 0.001"),
        (["--alpha", "0.7"], "alpha is 0.7; choose"),
        (["--sigma", "0"], "sigma <= 1e+06, not 0"),
        (["--sigma", "-1"], "sigma <= 1e+06, not -1"),
        (["--indices", "5000"], "5000"),
        (["--aggregation", "head-7"], "This network has no aggregation 'head-7'"),
        (["--device", "cuda:9"], "This machine has no device 'cuda:9'"),
    ],
)
def test_wrong_certification_settings(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    out = tmp_path / "ledger"
    assert message in fails(capsys, "certify", str(trained), *FEW, "--out", str(out), *arguments)
    assert not (out / "ledger.tsv").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--train.sigma", "-1"], "sigma >= 0"),
        (["--train.lr", "nan"], "lr > 0"),
        (["--model.arch", "resnet9"], "did you mean 'resnet8'"),
        (["--model.cut", "stage9"], "stage"),
        (["--data.name", "cifar10"], "'cifar10' needs to know where"),
        (["--data.name", "cifar10", "--data.root", "nowhere"], "no file or folder"),
        (["--train.lr", "1e30", *SMALL], "The loss is nan"),
    ],
)
def test_wrong_training_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    out = tmp_path / "run"
    assert message in fails(capsys, "train", "digits-some", *arguments, "--out", str(out))
    assert not (out / "checkpoint").exists()


def test_wrong_paths(tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "There is no checkpoint in" in fails(capsys, "certify", str(tmp_path / "none"))
    assert "none.tsv" in fails(capsys, "report", str(tmp_path / "none.tsv"))
    assert "no image file" in fails(capsys, "predict", str(trained), str(tmp_path / "none.png"))
    assert "config.json" in fails(capsys, "train", str(tmp_path / "config.json"))


def test_wrong_images(tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Image.fromarray(np.zeros((9, 8), dtype=np.uint8)).save(tmp_path / "size.png")
    assert "8x9 pixels, and the network takes 8x8" in fails(
        capsys, "predict", str(trained), str(tmp_path / "size.png")
    )
    (tmp_path / "torn.png").write_bytes(digit_file(tmp_path / "a.png").read_bytes()[:40])
    assert "torn.png" in fails(capsys, "predict", str(trained), str(tmp_path / "torn.png"))


def test_damaged_checkpoint_and_changed_resume(
    tmp_path: Path, trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained, copy)
    assert "train.lr = 0.5 instead of 0.1" in fails(
        capsys, "train", "digits-some", *SMALL, "--train.lr", "0.5", "--out", str(copy), "--resume"
    )
    weights = copy / "checkpoint" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert "model.safetensors has another sha256" in fails(capsys, "certify", str(copy), *FEW)


def test_a_configuration_can_be_passed_back(tmp_path: Path, trained: Path) -> None:
    again = tmp_path / "again"
    assert main(["train", str(trained / "config.json"), "--out", str(again)]) == 0
    one, other = (folder / "checkpoint" / "model.safetensors" for folder in (trained, again))
    assert one.read_bytes() == other.read_bytes()


def test_ctrl_c_is_130_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from smoothheads.cli.info import InfoCommand

    def interrupted(_: InfoCommand) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(InfoCommand, "run", interrupted)
    assert main(["info", "recipes"]) == 130
    assert "interrupted" in capsys.readouterr().err


def test_another_method_takes_the_place_of_the_recipes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [*SMALL, "--method", "consistency", "--objective.method.strength", "5", "--out", str(tmp_path)]
    assert main(["train", "digits-some", *options]) == 0
    saved = json.loads((tmp_path / "config.json").read_text())["objective"]["method"]
    assert (saved["name"], saved["strength"], saved["draws"]) == ("consistency", 5.0, 2)
    assert "did you mean 'smoothmix'" in fails(capsys, "train", "digits-some", "--method", "smoothmx")


@pytest.mark.parametrize(
    "options",
    [
        ["--budget", "table", "--radii", "0", "0.1", "0.2"],
        ["--budget", "table", "--label-aware"],
        ["--budget", "radius", "--tolerance", "0.1"],
        ["--budget", "anytime", "--target", "0.1"],
    ],
)
def test_every_budget_certifies(
    trained: Path, tmp_path: Path, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "ledger"
    few = FEW[2:] if "radius" in options else FEW
    assert main(["certify", str(trained), *few, *options, "--out", str(out)]) == 0
    assert main(["certify", str(trained), *few, *options, "--out", str(out)]) == 0  # nothing left to do
    assert len((out / "ledger.tsv").read_text().splitlines()) == 5


def test_options_that_the_budget_would_ignore_are_refused(
    trained: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = fails(capsys, "certify", str(trained), "--radii", "0.5")
    assert "radii belongs to budget table, not to fixed" in message


def test_a_warning_is_one_line_without_the_source() -> None:
    assert format_warning(UserWarning("all labels are 0")) == "smoothheads: warning: all labels are 0\n"
