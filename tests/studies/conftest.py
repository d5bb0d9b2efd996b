"""A finished study, shared by the tests of its results."""

from __future__ import annotations

import pytest
from tests.studies.small import TEXT, Inline, results, start

from smoothheads.studies.results import StudyResults
from smoothheads.studies.run import StudyRun


@pytest.fixture(scope="session")
def finished(tmp_path_factory: pytest.TempPathFactory) -> StudyRun:
    run = start(TEXT, tmp_path_factory.mktemp("store"))
    assert run.run_on(Inline()) == {}
    return run


@pytest.fixture(scope="session")
def small_results(finished: StudyRun) -> StudyResults:
    return results(finished)
