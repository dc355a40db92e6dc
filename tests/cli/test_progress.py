"""A bar for those who wait: on a terminal, on the standard error, and only where it takes long."""

from __future__ import annotations

import sys

import pytest

from oncewire.cli import progress
from oncewire.cli.progress import progress_of


def be_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "REDRAW_S", 0.0)


def test_what_takes_long_shows_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_a_terminal(monkeypatch)
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    with progress_of("messages", 10) as show:
        show(4)
        out, err = capsys.readouterr()
        assert out == ""
        assert "messages" in err
        assert "4/10" in err.replace(" ", "")
        show(9)
        assert "9/10" in capsys.readouterr().err.replace(" ", "")
    assert set(capsys.readouterr().err) == {"\r", " "}, "and is wiped at the end"


def test_what_is_done_soon_and_what_is_not_wanted_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    be_a_terminal(monkeypatch)
    monkeypatch.setattr(progress, "AFTER_S", 3600.0)
    with progress_of("messages", 10) as show:
        show(10)
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    with progress_of("messages", 10, is_wanted=False) as show:
        show(10)
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_nothing_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "AFTER_S", 0.0)
    with progress_of("messages", 10) as show:
        show(10)
    assert capsys.readouterr() == ("", "")
