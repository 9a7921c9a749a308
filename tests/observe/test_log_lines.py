"""One event is one line, whatever clients call themselves."""

import io
import json
import logging
import sys
from typing import Any

import pytest

from penstock.observe.log_lines import (
    FIELD_CHARS_MAX,
    JsonLines,
    TextLines,
    field,
    moment,
    sentence,
    write_lines,
)

BAD = "a\r\nERROR forged\x1b[31m\u202eevil\0\u2028"


def record(text: Any, *arguments: Any, error: BaseException | None = None) -> logging.LogRecord:
    info = None if error is None else (type(error), error, error.__traceback__)
    return logging.LogRecord("penstock.server", logging.INFO, "x.py", 1, text, arguments, info)


@pytest.mark.parametrize("form", [TextLines(), JsonLines()])
@pytest.mark.parametrize("where", ["argument", "text"])
def test_one_event_is_one_printable_line(form: logging.Formatter, where: str) -> None:
    event = record("topic %s is new", BAD) if where == "argument" else record(BAD)
    line = form.format(event)
    assert line.isprintable()
    assert "evil" in line


def test_long_fields_are_cut() -> None:
    line = TextLines().format(record("topic %s and %s", "x" * 10_000, "short"))
    assert line.count("x") == FIELD_CHARS_MAX - 1
    assert line.endswith("… and short")


def test_numbers_stay_numbers() -> None:
    assert [field(each) for each in (1, 1.5, True, None)] == [1, 1.5, True, None]
    assert sentence(record("%d of %.1f", 3, 2.55)) == "3 of 2.5"


def test_named_arguments_and_wrong_ones_are_shown() -> None:
    named = logging.LogRecord("x", 20, "x", 1, "%(a)s", ({"a": BAD},), None)
    assert "\n" not in sentence(named)
    assert sentence(record("%d", "not a number")).startswith("%d ('not a number'")
    assert sentence(record(42)) == "42"


def test_json_has_time_level_log_and_text() -> None:
    row = json.loads(JsonLines().format(record("%s came", "ann")))
    assert row["level"] == "info"
    assert row["log"] == "penstock.server"
    assert row["text"] == "ann came"
    assert row["at"].endswith("Z")


@pytest.mark.parametrize("form", [TextLines(), JsonLines()])
def test_a_trace_is_in_the_same_line(form: logging.Formatter) -> None:
    line = form.format(record("it failed", error=ValueError(BAD)))
    assert line.isprintable()
    assert "ValueError" in line


def test_a_time_is_utc_to_the_millisecond() -> None:
    assert moment(0.0625) == "1970-01-01T00:00:00.062Z"


def test_the_form_can_be_changed_while_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    log = logging.getLogger("penstock.test")
    log.propagate = True
    write_lines("info", "text")
    log.info("one")
    log.debug("never")
    write_lines("debug", "json")
    log.debug("two")
    first, second = stream.getvalue().splitlines()
    assert first.endswith("INFO penstock.test: one")
    assert json.loads(second)["text"] == "two"
    assert len(logging.getLogger("penstock").handlers) == 1
