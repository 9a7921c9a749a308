import pytest

from penstock.cli.demo.narrator import Narrator
from penstock.cli.output import Output


def test_chapters_are_numbered_and_promises_marked(capsys: pytest.CaptureFixture[str]) -> None:
    narrator = Narrator(Output())
    narrator.step("One")
    narrator.say("A sentence.")
    narrator.step("Two")
    narrator.aside("A detail.")
    narrator.check("it holds", is_kept=True)
    narrator.check("it does not", is_kept=False)
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert lines == [
        "1. One",
        "   A sentence.",
        "2. Two",
        "   A detail.",
        "   kept    it holds",
        "   BROKEN  it does not",
    ]


def test_a_machine_hears_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    narrator = Narrator(Output(is_json=True))
    narrator.step("One")
    narrator.check("it holds", is_kept=True)
    assert capsys.readouterr().out == ""
