"""Bytes as they arrive, cut into lines. Nothing is kept of a line that is too long.

A line ends with LF or CRLF. What `telnet` sends about itself is taken out: when its user presses
Ctrl-C it sends IAC IP, IAC DO TIMING-MARK and shows nothing more until it is answered.

    IAC = FF   a command of two bytes: FF F1…F9    of three: FF FB…FE <option>

FF is in no UTF-8 text. An option that is CR or LF is no option: the bytes stay, and the line is
refused as what it is.
"""

from enum import Enum
from typing import Final

IAC: Final = 0xFF
_COMMANDS: Final = range(0xF1, 0xFA)
_NEGOTIATIONS: Final = range(0xFB, 0xFF)
_DO: Final = 0xFD
_INTERRUPT: Final = 0xF4
_TIMING_MARK: Final = 0x06
_LINE_ENDS: Final = b"\r\n"
_MARK_REFUSED: Final = bytes((IAC, 0xFC, _TIMING_MARK))


class TooLong(Enum):
    """Stands in the place of a line that was longer than allowed."""

    LINE = "a line that is too long"


class LineSplitter:
    """The lines of one connection."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._parts: list[bytes] = []
        """Pieces of the line that has begun."""
        self._size = 0
        self._is_skipping = False
        self._telnet = b""
        """The beginning of a telnet command whose end has not arrived."""
        self._answers = b""

    @property
    def pending_bytes(self) -> int:
        """How much is kept of the line that has begun."""
        return self._size

    @property
    def has_begun(self) -> bool:
        """True when a line has begun and not ended, also one that is too long."""
        return self._size > 0 or self._is_skipping or bool(self._telnet)

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that are whole now, without their ends."""
        if self._telnet or IAC in data:
            data = self._without_telnet(data)
        if b"\n" not in data:  # the usual case of a client that sends byte by byte
            self._begin(data)
            return []
        first, *rest = data.split(b"\n")
        found: list[bytes | TooLong] = [self._finish(first)]
        *whole, last = rest
        longest = self._bytes_max
        for line in whole:
            if line[-1:] == b"\r":
                line = line[:-1]  # noqa: PLW2901 - the same line, without its end
            found.append(line if len(line) <= longest else TooLong.LINE)
        self._begin(last)
        return found

    def answers(self) -> bytes:
        """What `telnet` waits for; asked for after each `feed`."""
        answers, self._answers = self._answers, b""
        return answers

    def _begin(self, part: bytes) -> None:
        """Keeps a piece of a line, or gives the whole line up."""
        if self._is_skipping or not part:
            return
        self._parts.append(part)
        self._size += len(part)
        if self._size > self._bytes_max + 1:  # its last byte may be the CR of its end
            self._forget()
            self._is_skipping = True
        elif len(self._parts) > _PARTS_MAX:
            self._parts = [b"".join(self._parts)]

    def _finish(self, part: bytes) -> bytes | TooLong:
        if self._is_skipping:
            self._is_skipping = False
            return TooLong.LINE
        line = b"".join((*self._parts, part)) if self._parts else part
        self._forget()
        if line[-1:] == b"\r":
            line = line[:-1]
        return line if len(line) <= self._bytes_max else TooLong.LINE

    def _forget(self) -> None:
        self._parts = []
        self._size = 0

    def _without_telnet(self, data: bytes) -> bytes:
        data = self._telnet + data
        self._telnet = b""
        kept: list[bytes] = []
        at = 0
        while (mark := data.find(IAC, at)) >= 0:
            kept.append(data[at:mark])
            size = _telnet_size(data, mark)
            if size is None:
                self._telnet = data[mark:]
                return b"".join(kept)
            if size == 1:
                kept.append(data[mark : mark + 1])
            elif data[mark + 1] == _INTERRUPT:
                self._interrupt(kept)
            elif data[mark + 1 : mark + 3] == bytes((_DO, _TIMING_MARK)):
                self._answers = _MARK_REFUSED
            at = mark + size
        kept.append(data[at:])
        return b"".join(kept)

    def _interrupt(self, kept: list[bytes]) -> None:
        """Ctrl-C: the line that has begun is not meant any more."""
        before = b"".join(kept)
        end = before.rfind(b"\n") + 1
        kept[:] = [before[:end]]
        if not end:
            self._forget()
            self._is_skipping = False


_PARTS_MAX: Final = 1_024
"""A client that sends byte by byte makes no more pieces than this."""


def _telnet_size(data: bytes, mark: int) -> int | None:
    """Bytes of the telnet command at `mark`, 1 when it is none, None when more must arrive."""
    if len(data) == mark + 1:
        return None
    kind = data[mark + 1]
    if kind in _COMMANDS:
        return 2
    if kind not in _NEGOTIATIONS:
        return 1
    if len(data) == mark + 2:
        return None
    return 1 if data[mark + 2] in _LINE_ENDS else 3
