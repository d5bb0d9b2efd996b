"""The page in a real browser: upload, live certificate, stop, attack, compare, colours, a narrow screen."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from smoothheads.serve import Server

from .conftest import picture

pytestmark = pytest.mark.browser

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = os.environ.get("SMOOTHHEADS_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("no Chromium here; `apt-get install chromium`, or set SMOOTHHEADS_BROWSER to one")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def tab(browser: Any, server: Server) -> Iterator[Callable[..., Any]]:
    """`tab("#/runs", width=400)`; a script that fails or asks elsewhere fails the test."""
    contexts: list[Any] = []
    problems: list[str] = []

    def make(view: str = "", width: int = 1100, **options: Any) -> Any:
        context = browser.new_context(viewport={"width": width, "height": 800}, **options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda message: problems.extend(_refused(message.text)))
        page.on("request", lambda request: problems.extend(_foreign(request.url, server)))
        page.goto(server.url + view)
        return page

    yield make
    for context in contexts:
        context.close()
    assert not problems


def _refused(message: str) -> list[str]:
    return [message] if "Content Security" in message else []


def _foreign(address: str, server: Server) -> list[str]:
    return [] if address.startswith((server.url, "data:", "blob:")) else [address]


def until(page: Any, selector: str, true: Callable[[str], bool], seconds: float = 60.0) -> str:
    end, text = time.monotonic() + seconds, ""
    while time.monotonic() < end:
        element = page.query_selector(selector)
        text = (element.text_content() or "") if element else ""
        if element and true(text):
            return text
        time.sleep(0.05)
    raise AssertionError(f"{selector} stayed {text!r}")


def test_first_test_image_runs_at_once(tab: Callable[..., Any]) -> None:
    page = tab()
    until(page, "#samples", lambda text: int(text.replace(",", "")) >= 200)
    assert "SOME, 5 heads" in page.text_content("main")
    chosen = page.get_attribute(".samples [aria-pressed=true]", "title")
    assert chosen.rpartition(" ")[2] == page.text_content("#label")
    page.wait_for_selector(".chart svg")  # the radius is drawn while it grows
    page.evaluate("document.querySelector('#stop')?.click()")  # unless all samples are drawn already
    radius = page.text_content("#radius")
    if float(radius) > 0:
        assert re.match(
            r"like changing one pixel by \d+(\.\d)? %, or every pixel by", page.text_content("#means")
        )
    page.click("text=Attack it")
    page.wait_for_selector("#push")
    assert page.text_content("#radius") == radius  # the same on both pages


def test_deep_image_is_not_offered_to_be_resized(tab: Callable[..., Any]) -> None:
    page = tab()
    page.wait_for_selector("#file", state="attached")
    page.set_input_files("#file", {"name": "x.png", "mimeType": "image/png", "buffer": picture("I;16")})
    assert "8-bit" in page.text_content("[role=alert]")
    assert page.query_selector("text=Resize it and go on") is None


def test_training_in_words(tab: Callable[..., Any]) -> None:
    page = tab("#/training?id=some")
    page.wait_for_selector(".chart svg")
    titles = page.eval_on_selector_all("h3", "all => all.map((each) => each.textContent)")
    assert titles[:2] == ["loss", "validation accuracy"]
    assert "easy images" in titles
    for chart in page.query_selector_all(".chart"):
        chart.query_selector("svg").hover()
        assert "epoch" in chart.query_selector(".tip").text_content()


def test_upload_watch_and_stop(tab: Callable[..., Any], tmp_path: Path) -> None:
    page = tab()
    page.set_input_files("#file", {"name": "x.png", "mimeType": "image/png", "buffer": picture()})
    page.wait_for_selector("#label", state="detached")  # of the test image that ran before
    until(page, "#samples", lambda text: int(text.replace(",", "")) >= 200)
    page.click("#stop")
    page.wait_for_selector("text=Start again")
    stopped = page.text_content("#samples")
    assert "holds" in page.text_content("#state")
    assert "sure" in page.text_content(".says") or "nothing is claimed" in page.text_content(".says")
    time.sleep(0.5)
    assert page.text_content("#samples") == stopped
    assert len(page.query_selector_all(".bars .fill")) == 10
    page.screenshot(path=tmp_path / "classify.png")


def test_wrong_size_may_be_resized(tab: Callable[..., Any]) -> None:
    page = tab()
    page.wait_for_selector("#file", state="attached")
    large = {"name": "x.png", "mimeType": "image/png", "buffer": picture(size=(20, 10))}
    page.set_input_files("#file", large)
    assert "8x8 pixels, and image 1 has 20x10" in page.text_content("[role=alert]")
    page.click("text=Resize it and go on")
    until(page, "#samples", lambda text: text != "0")


def test_attack_slider(tab: Callable[..., Any]) -> None:
    page = tab("#/attack")
    page.click(".samples button >> nth=0")
    until(page, "#state", lambda text: "Push the slider" in text)
    before = page.get_attribute("#push", "aria-valuetext")
    page.focus("#push")
    for _ in range(3):
        page.keyboard.press("End" if before else "PageUp")
    assert page.get_attribute("#push", "aria-valuetext") != before
    # Votes that decide nothing are no success of the attack.
    undecided = page.text_content("#answer") == "abstains"
    assert not (undecided and "won" in page.text_content(".says"))


def test_compare_two_ledgers(tab: Callable[..., Any]) -> None:
    page = tab("#/runs")
    assert "<img src=x" in until(page, "tbody", lambda text: "ledger-fixed" in text)  # shown as text
    page.fill("input[type=search]", "ledger-")
    for name in ("some/ledger-fixed", "some/ledger-anytime"):
        page.check(f'input[aria-label="Choose {name}"]')
    page.wait_for_selector("#compare")
    note = "one trained network"
    assert page.text_content("main").count(note) == 1
    page.hover(".chart svg")
    assert "radius" in page.text_content(".tip")
    page.focus(".chart svg")
    page.keyboard.press("ArrowRight")
    page.reload()  # a view is a link
    page.wait_for_selector(".chart svg")
    page.click("#compare")
    page.wait_for_selector("#differ")
    assert "some/ledger-anytime" in page.text_content(".lead")
    page.goto(page.url.replace("#/compare", "#/image") + "&index=0")


def test_dark_and_narrow(tab: Callable[..., Any], tmp_path: Path) -> None:
    page = tab("#/runs", width=400, color_scheme="dark")
    page.wait_for_selector("tbody input")
    page.check("tbody input >> nth=0")
    page.wait_for_selector(".chart svg")
    dark = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert page.evaluate("() => document.documentElement.scrollWidth") <= 400
    page.click("#theme")
    light = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    assert (dark, light) == ("rgb(20, 22, 26)", "rgb(255, 255, 255)")
    page.screenshot(path=tmp_path / "narrow.png")
