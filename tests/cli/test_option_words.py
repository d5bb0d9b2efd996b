"""One word per thing: what an option means is read from its help, as a user reads it."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout, suppress

import pytest
from tests.example import example_run

from smoothheads.cli import COMMANDS, main
from smoothheads.cli.common import THEIR_WORDS

THINGS = {
    "root": r"where the data (set )?lies",
    "workers": r"\bprocesses\b",
    "json": r"\bas JSON\b|\bprint JSON\b",
    "out": r"^(folder (of|for) |the new folder|name of the results|write the answers)|\breport go\b",
    "first": r"\bthe first\b.*\bimages\b|\bat most this many\b|\bso many images\b",
    "every": r"\bevery k-th image",
    "offset": r"\bimages first: --offset",
    "indices": r"\bpositions in the split",
    "name": r"LOG=LABEL",
    "plot": r"^draw\b",
    "fresh": r"\bthrow away\b",
}
OTHER_WORDS = {"jobs", "processes", "output", "keep", "copies", "data-dir", "images-first", "subset"}
SHORT = " (-o)"
NOTHING_PRINTED = {"serve"}  # it answers over HTTP


def commands() -> list[list[str]]:
    return [[name] for name in COMMANDS]


def shown(command: list[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Option, with the path of settings that it lies in, to what its help says."""
    monkeypatch.setenv("COLUMNS", "110")
    out = io.StringIO()
    with redirect_stdout(out), suppress(SystemExit):
        main([*command, "--help"])
    found: dict[str, str] = {}
    word = ""
    for line in out.getvalue().splitlines():
        text = line.strip("│ ").strip()
        if option := re.match(r"(-o [^,]*, )?--([a-z][\w.-]*)", text):
            word = option[2]
            found[word] = re.split(r"\s{2,}", text, maxsplit=1)[1] if re.search(r"\s{2,}", text) else ""
            found[word] += SHORT if option[1] else ""
        elif word and re.search(r"^\W {6,}\S*\w", line):
            found[word] += f" {text}"
        else:
            word = ""
    return found


@pytest.fixture(name="tables", scope="module")
def _tables() -> dict[str, dict[str, str]]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        found = {" ".join(command): shown(command, monkeypatch) for command in commands()}
    assert not [command for command, options in found.items() if not options]
    return found


def about(word: str, text: str) -> bool:
    return re.search(THINGS[word], text.removeprefix(SHORT).strip(), re.IGNORECASE) is not None


def test_every_thing_has_one_word(tables: dict[str, dict[str, str]]) -> None:
    others = [
        f"{command}: --{option} is --{word} elsewhere"
        for command, options in tables.items()
        for option, text in options.items()
        for word in THINGS
        if about(word, text) and option.rpartition(".")[2] != word
    ]
    assert not others, "\n".join(others)
    for word in THINGS:  # a pattern that matches nothing would check nothing
        texts = [options[word] for options in tables.values() if word in options]
        assert any(about(word, text) for text in texts), word


def test_no_word_for_what_has_another(tables: dict[str, dict[str, str]]) -> None:
    words = {(command, option) for command, options in tables.items() for option in options}
    assert not {each for each in words if each[1].partition(".")[0] in OTHER_WORDS}


@pytest.mark.parametrize(
    "arguments",
    [["study", "x.toml", "--jobs", "2"], ["paper", "--data-dir=y"], ["report", "x", "--output", "y"]],
)
def test_the_words_of_others_are_told_ours(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    theirs = next(word for word in arguments if word.startswith("--")).partition("=")[0]
    assert f"Use --{THEIR_WORDS[theirs[2:]][0]} instead of {theirs}." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("--skip", "--every"),
        ("--N", "--n"),
        ("--N0", "--n0"),
        ("--outfile", "--out"),
        ("--noise_sd", "--sigma"),
    ],
)
def test_options_of_cohens_code_are_told_ours(
    theirs: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["certify", str(example_run()), theirs, "20"]) == 2
    assert f"Use {ours} instead of {theirs}." in capsys.readouterr().err


def test_one_sentence_one_word(tables: dict[str, dict[str, str]]) -> None:
    """Two commands that explain an option in the same words call it the same."""
    words: dict[str, set[str]] = {}
    for options in tables.values():
        for option, text in options.items():
            sentence = re.sub(r"\s*\(default: [^()]*\)", "", text.replace(SHORT, "")).strip()
            if len(sentence) > 20:
                words.setdefault(sentence, set()).add(option.rpartition(".")[2])
    assert not {sentence: found for sentence, found in words.items() if len(found) > 1}
    assert len(words) > 50


def test_results_can_be_had_as_json_and_outputs_have_a_short_word(tables: dict[str, dict[str, str]]) -> None:
    for command, options in tables.items():
        assert "json" in options or command in NOTHING_PRINTED, command
        assert "out" not in options or SHORT in options["out"], command


def test_the_data_set_can_be_said_to_lie_elsewhere(tables: dict[str, dict[str, str]]) -> None:
    for command in (
        "train",
        "certify",
        "predict",
        "attack",
        "diversity",
        "ensemble",
        "import",
        "study",
        "paper",
    ):
        assert "root" in tables[command], command


@pytest.mark.parametrize("command", COMMANDS)
def test_placeholders_are_words_and_no_default_is_none(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    with pytest.raises(SystemExit):
        main([command, "--help"])
    text = capsys.readouterr().out
    assert not re.search(r"\bSTR\b|\[\[|None[},]|\{None|default: (None|''|\))|default: \(|\bREPO\b", text)
    assert max(map(len, text.splitlines())) <= 110


def test_every_option_is_explained(tables: dict[str, dict[str, str]]) -> None:
    silent = [
        f"{command} --{option}"
        for command, options in tables.items()
        for option, text in options.items()
        if option != "engine"  # named by a description, not an option
        if "None" in text or not re.sub(r"\(default: [^()]*\)", "", text.replace(SHORT, "")).strip()
    ]
    assert not silent


def test_names_of_positional_arguments(capsys: pytest.CaptureFixture[str]) -> None:
    for command, usage in {
        "push": "FOLDER USER/NAME",
        "report": "[LOG...]",
        "recertify": "LEDGER",
        "predict": "CHECKPOINT [-h] [OPTIONS] [IMAGE...]",
        "study": "FILE",
        "board": "FOLDER",
    }.items():
        with pytest.raises(SystemExit):
            main([command, "--help"])
        assert usage in capsys.readouterr().out.partition("\n\n")[0]
