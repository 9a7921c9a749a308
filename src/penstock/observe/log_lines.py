"""Log lines of a server: one event is one line, for people or as JSON, whatever it speaks of.

Names and texts that clients chose may hold line ends, escapes for terminals and marks that turn
the direction of text: they are written as escapes, and each is cut after FIELD_CHARS_MAX.
"""

import json
import logging
import time
from typing import Any, Final

FIELD_CHARS_MAX: Final = 256
TRACE_CHARS_MAX: Final = 16_384
LOG: Final = "penstock"
LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def plain(text: str) -> str:
    """Text without anything that could end a line or steer a terminal."""
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() else mark.encode("unicode_escape").decode() for mark in text
    )


def field(value: Any) -> Any:
    """What one event says of one thing: plain and short. Numbers stay numbers."""
    if isinstance(value, bool | int | float) or value is None:
        return value
    text = plain(value if isinstance(value, str) else str(value))
    return text if len(text) <= FIELD_CHARS_MAX else text[: FIELD_CHARS_MAX - 1] + "…"


def sentence(record: logging.LogRecord) -> str:
    """The sentence of an event, with its fields made plain and short."""
    arguments = record.args
    try:
        if isinstance(arguments, tuple) and arguments:
            return plain(str(record.msg) % tuple(field(each) for each in arguments))
        if isinstance(arguments, dict):
            return plain(str(record.msg) % {name: field(each) for name, each in arguments.items()})
    except (TypeError, ValueError):
        return plain(f"{record.msg} {arguments!r:.{FIELD_CHARS_MAX}}")
    return plain(str(record.msg))


def trace(record: logging.LogRecord) -> str:
    """Where an exception came from, in one line; empty when there is none."""
    if not record.exc_info or record.exc_info[0] is None:
        return ""
    text = logging.Formatter().formatException(record.exc_info)
    joined = " | ".join(line.strip() for line in text.splitlines())
    return plain(joined)[:TRACE_CHARS_MAX]


class TextLines(logging.Formatter):
    """2026-01-31T12:00:00.123Z INFO penstock.server: what happened."""

    def format(self, record: logging.LogRecord) -> str:
        found = trace(record)
        line = f"{moment(record.created)} {record.levelname} {record.name}: {sentence(record)}"
        return f"{line} | {found}" if found else line


class JsonLines(logging.Formatter):
    """One JSON object a line: at, level, log, text, and trace when there is an exception."""

    def format(self, record: logging.LogRecord) -> str:
        row = {
            "at": moment(record.created),
            "level": record.levelname.lower(),
            "log": record.name,
            "text": sentence(record),
        }
        found = trace(record)
        if found:
            row["trace"] = found
        return json.dumps(row, ensure_ascii=True)


def moment(created: float) -> str:
    """A time in UTC, to the millisecond."""
    whole = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(created))
    return f"{whole}.{int(created % 1 * 1000):03d}Z"


def write_lines(level: str, form: str) -> logging.Handler:
    """Sends the library's log to standard error in this form; calling again changes it."""
    log = logging.getLogger(LOG)
    handlers = [each for each in log.handlers if getattr(each, "is_penstock_server", False)]
    handler = handlers[0] if handlers else logging.StreamHandler()
    handler.setFormatter(JsonLines() if form == "json" else TextLines())
    handler.is_penstock_server = True  # type: ignore[attr-defined]  # so that it is found again
    log.handlers[:] = [handler]
    log.setLevel(LEVELS[level])
    return handler
