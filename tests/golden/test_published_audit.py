"""What an audit says about the published logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from smoothheads.results.audit import Audit, audit

pytestmark = pytest.mark.shared


def _audit(shared_data: Path, name: str, **stated: float) -> Audit:
    n = 100_000 if stated else None
    return audit(shared_data / "published-logs" / f"{name}.tsv", n=n, **stated)  # type: ignore[arg-type]


def _errors(result: Audit) -> set[str]:
    return {finding.code for finding in result.findings if finding.severity == "error"}


@pytest.mark.parametrize(
    ("name", "alpha"),
    [
        ("cohen/imagenet-0.25", 0.01),
        ("cohen/imagenet-0.50", 0.01),
        ("cohen/imagenet-1.00", 0.01),
        ("cohen/cifar10-0.25", 0.01),
        ("cohen/cifar10-0.50", 0.01),
        ("some/gaussian-0.25", 0.001),
        ("some/consistency-0.50", 0.001),
        ("some/smoothmix-1.00", 0.001),
    ],
)
def test_the_radii_reveal_alpha(shared_data: Path, name: str, alpha: float) -> None:
    unstated = _audit(shared_data, name)
    assert unstated.sigma == float(name[-4:])
    assert unstated.best_fit is not None
    assert unstated.best_fit.settings == (100_000, alpha)
    assert _errors(_audit(shared_data, name, alpha=0.001)) == ({"cap"} if alpha == 0.01 else set())
    assert _audit(shared_data, name, alpha=alpha).sound


def test_cifar_at_sigma_one_is_not_alpha_one_in_a_thousand(shared_data: Path) -> None:
    """Its largest radius, 3.56, is below the cap, but no rung of alpha 0.001; it is one of 0.01."""
    stated = _audit(shared_data, "cohen/cifar10-1.00", alpha=0.001)
    assert _errors(stated) == {"settings"}
    assert _audit(shared_data, "cohen/cifar10-1.00", alpha=0.01).sound
    assert stated.best_fit is None


def test_the_short_log_is_named(shared_data: Path) -> None:
    messages = {f.code: f.message for f in _audit(shared_data, "cohen/imagenet-0.25").findings}
    assert messages["incomplete"].startswith("427 of 500 images, if the log is of every 100th")


def test_only_logs_of_427_images_are_incomplete(shared_data: Path) -> None:
    for path in sorted((shared_data / "published-logs").glob("*/*.tsv")):
        result = audit(path)
        assert (result.images == 427) == ("incomplete" in {finding.code for finding in result.findings})


def test_three_digits_and_ties_are_named(shared_data: Path) -> None:
    (finding,) = (f for f in _audit(shared_data, "some/consistency-0.50").findings if f.code == "rounding")
    assert len(finding.rows) == 6
