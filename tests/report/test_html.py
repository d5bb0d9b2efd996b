"""The page stands alone, shows every number, and trusts no text."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

from smoothheads.report.html import page, write
from smoothheads.results.compare import compare
from smoothheads.results.manifest import DataFacts
from smoothheads.results.results import Results

Make = Callable[..., Results]
EVIL = '<script>alert("1")</script>&\'"'


class Reader(HTMLParser):
    """Tags, ids and references; fails on a tag that is closed but not open."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        values = {name: value or "" for name, value in attrs}
        self.ids += [values["id"]] if "id" in values else []
        self.links += [values[name] for name in ("src", "href", "xlink:href") if name in values]
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "img"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_one_file_that_needs_nothing_else(make_log: Make) -> None:
    text = page(compare([make_log("a"), make_log("b", 20)]), title="t", gallery=[(b"\x89PNG", "seven")])
    reader = Reader(text)
    assert not reader.open
    assert reader.tags.count("svg") == 3
    assert "script" not in reader.tags
    assert "link" not in reader.tags
    assert all(link.startswith(("#", "data:image/png;base64,")) for link in reader.links)
    assert "@import" not in text
    assert "viewport" in text


def test_ids_are_unique_and_references_meet_them(make_log: Make) -> None:
    text = page(compare([make_log()]), title="t")
    reader = Reader(text)
    assert len(set(reader.ids)) == len(reader.ids)
    references = set(re.findall(r"url\(#([^)]+)\)", text)) | {link[1:] for link in reader.links}
    assert references
    assert references <= set(reader.ids)


def test_text_from_files_is_escaped(make_log: Make) -> None:
    log = make_log(EVIL)
    assert log.manifest is not None
    facts = {"data": DataFacts(name=EVIL, fingerprint=EVIL), "engine": {EVIL: EVIL}, "scope": EVIL}
    log = replace(log, manifest=replace(log.manifest, **facts))  # type: ignore[arg-type]
    text = page(compare([log, replace(make_log("b"), name=EVIL + "2")]), title=EVIL, gallery=[(b"", EVIL)])
    assert "<script" not in text
    assert not Reader(text).open


def test_several_logs_have_differences(make_log: Make) -> None:
    assert "Paired differences" not in page(compare([make_log()]), title="t")
    both = page(compare([make_log("a"), make_log("b", 20)]), title="t")
    assert "b against a, paired over 40 images" in both


def test_facts_guarantee_and_cost_are_there(make_log: Make) -> None:
    text = page(compare([make_log()]), title="My run")
    for expected in (
        "<title>My run</title>",
        "digits · 40 images · sigma 0.5 · n 1,000 · alpha 0.001",
        "<dt>weights</dt><dd>abc</dd>",
        "Scope: a scope.",
        "What is not",
    ):
        assert expected in text


def test_a_foreign_log_makes_a_page_too(make_log: Make) -> None:
    foreign = make_log().without_votes(manifest=None, sigma=None, alpha=None, n=None, n0=None)
    text = page(compare([foreign]), title="t")
    assert "a log without a manifest" in text
    assert "How sure the network is" not in text


def test_written_whole(make_log: Make, tmp_path: Path) -> None:
    write(compare([make_log()]), tmp_path / "new")
    assert (tmp_path / "new" / "report.html").read_text(encoding="utf-8").endswith("</html>\n")
