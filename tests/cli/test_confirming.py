import io
import sys
from argparse import ArgumentParser, Namespace

import pytest

from penstock.cli.confirming import add_yes, agreed
from penstock.cli.output import Output


class Keyboard(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "expected"),
    [("y\n", True), ("Yes\n", True), ("n\n", False), ("\n", False), ("", False)],
)
def test_a_person_is_asked(
    typed: str,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    assert agreed(Namespace(yes=False), Output(), "delete it?") is expected
    assert capsys.readouterr().err == "delete it? [y/N] "


def test_a_program_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert agreed(Namespace(yes=False), Output(), "delete it?")


def test_yes_answers_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Keyboard("n\n"))
    parser = ArgumentParser()
    add_yes(parser)
    assert agreed(parser.parse_args(["--yes"]), Output(), "delete it?")
