from __future__ import annotations

import json
from pathlib import Path

import pytest

from smoothheads.config import load_json, parse_json
from smoothheads.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expecting value"),
        ("[1]", "a JSON object in here, got list"),
        ("{" + '"a":{' * 60 + "}" * 61, "more than 50 levels"),
        ('{"a":' * 100_000, "levels"),
        ("[" * 100_000, "too many levels"),
        ('{"a": ' + "9" * 5000 + "}", "digits"),
        (json.dumps({"a": 10**400}), r"beyond 2\*\*64"),
        ('{"a": 1, "a": 2}', "appears twice"),
        ('{"a": "\\ud800"}', "surrogates"),
        (b'{"a": "\xff"}', "decode"),
        (b"\xff\xfe{\x00", "Expecting"),
    ],
)
def test_what_no_reader_could_stand_is_refused(text: str | bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_json(text, "here")


def test_a_file_that_is_missing_or_a_folder_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="got none"):
        load_json(tmp_path / "absent.json")
    with pytest.raises(ConfigError, match="readable file"):
        load_json(tmp_path)


def test_a_good_file_is_read(tmp_path: Path) -> None:
    value = {"a": [1, 2.5, None, True, {"b": "é"}], "seed": 2**64}
    (tmp_path / "x.json").write_text(json.dumps(value))
    assert load_json(tmp_path / "x.json") == value
