import io
import json
import sys

import pytest

from penstock.cli import output
from penstock.cli.output import Output


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_are_as_wide_as_their_widest_cell(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(["NAME", ">COUNT"], [["a", 1], ["long-name", 20_000], [None, ""]])
    assert capsys.readouterr().out.splitlines() == [
        "NAME       COUNT",
        "a              1",
        "long-name  20000",
        "",
    ]


def test_a_table_without_rows_is_its_titles(capsys: pytest.CaptureFixture[str]) -> None:
    Output().table(["NAME", ">COUNT"], [])
    assert capsys.readouterr().out == "NAME  COUNT\n"


def test_pairs_stand_under_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    Output().pairs({"a": 1, "longer": None})
    assert capsys.readouterr().out == "a       1\nlonger\n"


def test_a_document_is_json_with_the_letters_people_wrote(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Output().document({"name": "Ärger", "count": 2})
    text = capsys.readouterr().out
    assert json.loads(text) == {"name": "Ärger", "count": 2}
    assert "Ärger" in text


def test_a_row_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    Output().row({"text": "two\nlines"})
    assert capsys.readouterr().out.count("\n") == 1


def test_notices_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    Output().notice("by the way")
    assert capsys.readouterr() == ("", "by the way\n")


@pytest.mark.parametrize("quiet", [Output(is_quiet=True), Output(is_json=True)])
def test_notices_are_dropped_for_quiet_people_and_machines(
    quiet: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    quiet.notice("by the way")
    assert capsys.readouterr() == ("", "")


def test_an_error_is_one_line_with_its_code(capsys: pytest.CaptureFixture[str]) -> None:
    Output().error("unknown-topic", "there is no\n  topic 'x'")
    assert capsys.readouterr().err == "error: there is no topic 'x' [unknown-topic]\n"


def test_an_error_for_machines_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    Output(is_json=True).error("unknown-topic", "there is no topic 'x'")
    assert json.loads(capsys.readouterr().err) == {
        "error": {"code": "unknown-topic", "text": "there is no topic 'x'"}
    }


def test_colours_appear_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert Output().paint("x", output.RED, Terminal()) == "\x1b[31mx\x1b[0m"


def test_no_color_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    assert Output().paint("x", output.RED, Terminal()) == "x"


def test_there_are_no_colours_in_a_file() -> None:
    assert Output().paint("x", output.RED, io.StringIO()) == "x"


def test_a_body_goes_into_a_pipe_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    Output().body(b"\x00\xff")
    assert capfdbinary.readouterr().out == b"\x00\xff\n"


def test_a_body_cannot_play_with_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = Terminal()
    monkeypatch.setattr(sys, "stdout", screen)
    Output().body(b"\x1b[2Jgone \xff")
    assert screen.getvalue() == "\\x1b[2Jgone \\xff\n"


@pytest.mark.parametrize(
    ("value", "text"), [(None, "–"), (0, "0"), (1_234_567, "1,234,567"), (0.12345, "0.123")]
)
def test_numbers_are_grouped(value: float | None, text: str) -> None:
    assert output.number(value) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(None, "–"), (0, "0 B"), (999, "999 B"), (1_500, "1.5 kB"), (64_000_000, "64.0 MB")],
)
def test_bytes_have_units(count: int | None, text: str) -> None:
    assert output.size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.00035, "350 µs"),
        (0.0025, "2.5 ms"),
        (1.5, "1.5 s"),
        (300, "5 min"),
        (86_400, "24 h"),
        (7 * 86_400, "7 d"),
        (None, "for ever"),
    ],
)
def test_durations_have_units(seconds: float | None, text: str) -> None:
    assert output.duration(seconds) == text


def test_one_is_not_plural() -> None:
    assert [output.plural(n, "message") for n in (0, 1, 2_000)] == [
        "0 messages",
        "1 message",
        "2,000 messages",
    ]


def test_a_moment_is_shown_to_the_second() -> None:
    assert output.moment(1_700_000_000.5)[4::3][:2] == "--"
