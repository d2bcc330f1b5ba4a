"""Fixtures of the tests of calibration."""

import pytest


@pytest.fixture
def without_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports have their words and tables alone: drawing takes nearly all of their time."""
    monkeypatch.setattr("saga.pages.report.draw_charts", lambda *_: {})
    monkeypatch.setattr("saga.pages.report.draw_svg", lambda *_: "")
