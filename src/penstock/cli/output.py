"""What a command prints: tables for people, JSON for machines, one line for an error.

Results go to standard output, everything else to standard error. Colours appear only on a
terminal, and never when NO_COLOR is set.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import IO, Any, Final

BOLD, RED, GREEN, YELLOW, DIM = "1", "31", "32", "33", "2"

_UNITS: Final = ("B", "kB", "MB", "GB", "TB")
_STEP: Final = 1000


class Output:
    """Where a command speaks. `is_json` chooses the form, `is_quiet` drops the notices."""

    def __init__(self, *, is_json: bool = False, is_quiet: bool = False) -> None:
        self.is_json = is_json
        self.is_quiet = is_quiet

    # -- results -----------------------------------------------------------------------------------

    def document(self, value: Any) -> None:
        """One JSON document, for machines."""
        print(json.dumps(value, ensure_ascii=False, indent=2, default=str))

    def row(self, value: Any) -> None:
        """One line of JSON in a stream, written out at once."""
        print(json.dumps(value, ensure_ascii=False, default=str), flush=True)

    def say(self, text: str = "") -> None:
        """A line of result for people."""
        print(text)

    def heading(self, text: str) -> None:
        """A line that opens a section."""
        print(self.paint(text, BOLD))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        """Aligned columns; one whose title starts with '>' holds numbers and goes to the right."""
        titles = [column.removeprefix(">") for column in columns]
        cells = [["" if cell is None else str(cell) for cell in row] for row in rows]
        widths = [
            max(len(title), *(len(row[i]) for row in cells)) if cells else len(title)
            for i, title in enumerate(titles)
        ]
        is_number = [column.startswith(">") for column in columns]
        print(self.paint(_aligned(titles, widths, is_number), BOLD))
        for row in cells:
            print(_aligned(row, widths, is_number))

    def pairs(self, values: Mapping[str, Any]) -> None:
        """Names and values under each other."""
        width = max((len(name) for name in values), default=0)
        for name, value in values.items():
            print(f"{name:<{width}}  {'' if value is None else value}".rstrip())

    def body(self, data: bytes) -> None:
        """A message body and a line end: exact bytes into a pipe, printable text on a terminal."""
        if is_terminal(sys.stdout):
            print(printable(data), flush=True)
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(data + b"\n")
        sys.stdout.buffer.flush()

    # -- beside the results ------------------------------------------------------------------------

    def notice(self, text: str) -> None:
        """A remark for people, on standard error; dropped with --quiet and --json."""
        if not self.is_quiet and not self.is_json:
            print(text, file=sys.stderr)

    def error(self, code: str, text: str, problems: Sequence[str] = ()) -> None:
        """What went wrong, on standard error, in one line; several problems in a line each."""
        if self.is_json:
            shown = json.dumps({"error": {"code": code, "text": text}}, ensure_ascii=False)
        else:
            label = self.paint("error:", RED, sys.stderr)
            several = problems if len(problems) > 1 else ()
            first = text.partition("\n")[0] if several else text
            shown = f"{label} {_line(first)} [{code}]"
            shown += "".join(f"\n  {_line(each)}" for each in several)
        print(shown, file=sys.stderr)

    def paint(self, text: str, colour: str, stream: IO[str] | None = None) -> str:
        """The text in a colour, where colours are welcome."""
        return f"\x1b[{colour}m{text}\x1b[0m" if has_colour(stream or sys.stdout) else text


def _line(text: str) -> str:
    return " ".join(text.split())


def is_terminal(stream: IO[str]) -> bool:
    """True when a person looks at this stream."""
    return stream.isatty()


def has_colour(stream: IO[str]) -> bool:
    """True on a terminal that can show colours, unless NO_COLOR is set."""
    return (
        is_terminal(stream) and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )


def _aligned(cells: Sequence[str], widths: Sequence[int], is_number: Sequence[bool]) -> str:
    return "  ".join(
        f"{cell:>{width}}" if number else f"{cell:<{width}}"
        for cell, width, number in zip(cells, widths, is_number, strict=True)
    ).rstrip()


# -- values for people -----------------------------------------------------------------------------


def number(value: float | None) -> str:
    """1234567 → 1,234,567; small fractions keep three digits."""
    if value is None:
        return "–"
    if isinstance(value, int) or abs(value) >= _STEP:
        return f"{round(value):,}"
    return f"{value:.3g}"


def size(count: float | None) -> str:
    """Bytes as people say them: 1.2 MB."""
    if count is None:
        return "–"
    unit = 0
    while abs(count) >= _STEP and unit < len(_UNITS) - 1:
        count /= _STEP
        unit += 1
    return f"{count:.0f} B" if unit == 0 else f"{count:.1f} {_UNITS[unit]}"


def duration(seconds: float | None) -> str:
    """Seconds as people say them: 350 µs, 2.5 ms, 1.5 s, 3 min, 24 h."""
    if seconds is None:
        return "for ever"
    for limit, factor, unit in _DURATIONS:
        if seconds < limit:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds / 86_400:.3g} d"


_DURATIONS: Final = (
    (1e-3, 1e6, "µs"),
    (1.0, 1e3, "ms"),
    (120.0, 1.0, "s"),
    (7_200.0, 1 / 60, "min"),
    (172_800.0, 1 / 3_600, "h"),
)


def moment(timestamp: float) -> str:
    """A Unix time in the zone of this machine."""
    return datetime.fromtimestamp(timestamp).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def plural(count: int, noun: str) -> str:
    """1 message, 2 messages."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def printable(data: bytes) -> str:
    """Text that cannot move the cursor or recolour the terminal, whatever the bytes are."""
    text = data.decode(errors="backslashreplace")
    if text.isprintable():
        return text
    return "".join(
        mark if mark.isprintable() or mark == "\t" else mark.encode("unicode_escape").decode()
        for mark in text
    )
