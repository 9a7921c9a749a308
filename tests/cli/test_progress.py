import io
import sys

import pytest

from penstock.cli.output import Output
from penstock.cli.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def watch(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    return terminal


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_drawn_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(Output(), "copying", 10) as progress:
        progress.add(5)
        progress.draw()
    assert capsys.readouterr() == ("", "")


def test_nothing_is_drawn_for_quiet_people(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    with Progress(Output(is_quiet=True), "copying", 10) as progress:
        progress.add(5)
    assert screen.getvalue() == ""


def test_the_bar_shows_the_share_and_what_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    clock = Clock()
    with Progress(Output(), "copying", 10, clock) as progress:
        clock.now = 5.0
        progress.add(5)
        assert progress.text() == "copying [############............]  50%  5 s left"
        assert progress.text() in screen.getvalue()


def test_without_a_total_it_counts_up() -> None:
    clock = Clock()
    progress = Progress(Output(), "publishing", clock=clock)
    clock.now = 2.0
    progress.set(1_500)
    assert progress.text() == "publishing  1,500  2 s"


def test_it_is_not_drawn_more_often_than_eyes_can_see(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    clock = Clock()
    with Progress(Output(), "copying", 1_000, clock) as progress:
        for _ in range(1_000):
            progress.add()
        assert screen.getvalue().count("\r") == 1


def test_it_leaves_an_empty_line_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = watch(monkeypatch)
    with Progress(Output(), "copying", 10):
        pass
    assert screen.getvalue().endswith(" \r")
