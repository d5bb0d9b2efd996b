from __future__ import annotations

import json

from smoothheads.report.words import audit_json, audit_text
from smoothheads.results.audit import Audit, Finding
from smoothheads.results.infer import Fit, SampleSettings

FITS = (Fit(SampleSettings(1000, 0.01), 9, (), 1e-6), Fit(SampleSettings(1000, 0.001), 0, (2.5,), 1.0))
AUDIT = Audit(
    name="log",
    images=1500,
    sigma=0.25,
    stated=SampleSettings(1000, 0.001),
    fits=FITS,
    findings=(
        Finding("error", "cap", "radii are " + "far " * 30 + "too large", tuple(range(20))),
        Finding("note", "time", "in seconds"),
    ),
)


def test_text_says_it_all_within_the_width() -> None:
    text = audit_text(AUDIT, 80)
    lines = text.splitlines()
    assert lines[0] == "log: 1 error (1,500 images, sigma 0.25, stated n = 1,000 with alpha = 0.001)"
    assert all(len(line) <= 80 for line in lines[1:])
    assert lines[1].startswith("  error   cap             radii are far")
    assert lines[-1] == "  note    time            in seconds"
    assert "[idx 0, 1, 2, 3, 4, 5, 6, 7 and 12 more]" in " ".join(text.split())


def test_nothing_wrong_and_nothing_known() -> None:
    text = audit_text(Audit("log", 3, None, None, (), ()))
    assert text == "log: nothing wrong found (3 images, sigma unknown, n and alpha not stated)"


def test_json_is_plain() -> None:
    data = json.loads(json.dumps(audit_json(AUDIT)))
    assert data["sound"] is False
    assert data["stated"] == {"n": 1000, "alpha": 0.001}
    assert data["best_fit"] == {"n": 1000, "alpha": 0.01, "matched": 9, "chance": 1e-6}
    assert data["excluded"] == [{"n": 1000, "alpha": 0.001}]
    assert data["findings"][0]["rows"] == list(range(20))
    assert audit_json(Audit("log", 3, None, None, (), ()))["best_fit"] is None
