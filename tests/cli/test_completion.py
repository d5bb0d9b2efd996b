"""The shell's Tab key knows commands, recipes and options."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from smoothheads.cli import COMMANDS, main


@pytest.fixture(scope="module")
def bash() -> str:
    from smoothheads.cli import MODULES
    from smoothheads.cli.completion import script

    return script("bash", COMMANDS, MODULES)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["cert"], "certify"),
        (["train", "digits-s"], "digits-some"),
        (["certify", "x", "--fir"], "--first"),
    ],
)
def test_bash_completes(bash: str, words: list[str], expected: str) -> None:
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    line = " ".join(f"'{word}'" for word in ["smoothheads", *words])
    ask = f'{bash}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _smoothheads; echo "${{COMPREPLY[@]}}"'
    answer = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True)
    assert expected in answer.stdout.split()


def test_the_others_name_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-completion", "fish"]) == 0
    fish = capsys.readouterr().out
    for name in COMMANDS:
        assert f"__fish_use_subcommand -a {name} " in fish
    assert "-n '__fish_seen_subcommand_from serve' -l port" in fish
    if shell := shutil.which("fish"):
        subprocess.run([shell, "--no-execute", "-c", fish], check=True)


def test_other_shells_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--print-completion", "csh"]) == 2
    assert "Unknown shell" in capsys.readouterr().err
