"""`penstock top`: a live view of topics, rates, backlogs and the oldest unacked message."""

import asyncio
import contextlib
import os
import shutil
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from penstock.cli import sample, values
from penstock.cli.command import Command
from penstock.cli.connection import opened
from penstock.cli.output import (
    BOLD,
    GREEN,
    RED,
    YELLOW,
    Output,
    duration,
    is_terminal,
    number,
    plural,
    printable,
    size,
)
from penstock.cli.sample import SORTS, Look, TopicRow, View
from penstock.vocabulary.errors import Unavailable, UnknownTopic

INTERVAL_S: Final = 1.0
HEAD_LINES: Final = 5
ROWS_PLAIN_MAX: Final = 50
_COLUMNS: Final = ("IN/S", "OUT/S", "BACKLOG", "OLDEST", "MESSAGES", "BYTES", "CONSUMERS")
_WIDTHS: Final = (10, 10, 11, 9, 11, 10, 9)
KEYS: Final = "; s sorts, q quits"
_NAME_MIN: Final = 12
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("--once", action="store_true", help="show it once, and end")
    parser.add_argument(
        "--interval",
        metavar="TIME",
        type=values.seconds,
        default=INTERVAL_S,
        help=f"time between two looks (default: {INTERVAL_S:g}s)",
    )
    parser.add_argument(
        "--sort", choices=SORTS, default=SORTS[0], help="what comes first; the key s changes it"
    )


async def run(arguments: Namespace, output: Output) -> int:
    """On a terminal a screen that changes; otherwise one report for each interval."""
    async with opened(arguments) as client:
        top = Top(client, max(0.05, arguments.interval), arguments.sort)
        if arguments.once or output.is_json or not is_terminal(sys.stdout):
            await top.report(output, is_once=arguments.once)
        else:
            await top.screen(output)
    return 0


class Top:
    """The looks, and what is shown of them."""

    def __init__(self, client: Any, interval_s: float, sort: str) -> None:
        self._client = client
        self._interval_s = interval_s
        self._sort = sort
        self._before: Look | None = None
        self._wake = asyncio.Event()
        self._is_over = False

    async def _view(self, limit: int) -> View:
        """The broker now, with the rates since the last look. Raises Unavailable."""
        if self._before is None:
            self._before = await sample.look(self._client, time.time())
            await self._wait()
        now = await sample.look(self._client, time.time())
        found = sample.view(self._before, now)
        self._before = now
        if self._sort == "oldest":
            await self._find_oldest(now, found.rows)
            found.rows = sample.ordered(found.rows, self._sort)
        else:
            found.rows = sample.ordered(found.rows, self._sort)
            await self._find_oldest(now, found.rows[:limit])
        return found

    async def _find_oldest(self, now: Look, rows: list[TopicRow]) -> None:
        with contextlib.suppress(UnknownTopic):  # deleted since the look
            await sample.find_oldest(self._client, now, rows)

    async def _wait(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), self._interval_s)
        self._wake.clear()

    # -- for programs and pipes --------------------------------------------------------------------

    async def report(self, output: Output, *, is_once: bool) -> None:
        """One report for each interval, or just one."""
        while not self._is_over:
            found = await self._view(ROWS_PLAIN_MAX)
            if output.is_json and is_once:
                output.document(msgspec.to_builtins(found))
            elif output.is_json:
                output.row(msgspec.to_builtins(found))
            else:
                for line in lines(found, 100, len(found.rows) + HEAD_LINES, output, self._sort):
                    output.say(line)
                sys.stdout.flush()
            if is_once:
                return
            await self._wait()

    # -- for people --------------------------------------------------------------------------------

    async def screen(self, output: Output) -> None:
        """A screen that changes until q or Ctrl-C."""
        loop = asyncio.get_running_loop()
        with terminal() as is_keyboard:
            if is_keyboard:
                loop.add_reader(sys.stdin.fileno(), self._key)
            for number_ in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number_, self._end)
            loop.add_signal_handler(signal.SIGWINCH, self._wake.set)
            try:
                await self._draw(output)
            finally:
                for number_ in (signal.SIGINT, signal.SIGTERM, signal.SIGWINCH):
                    loop.remove_signal_handler(number_)
                if is_keyboard:
                    loop.remove_reader(sys.stdin.fileno())

    async def _draw(self, output: Output) -> None:
        found: View | None = None
        show(["looking …"])
        while not self._is_over:
            trouble = ""
            try:
                found = await self._view(shutil.get_terminal_size().lines)
            except Unavailable as error:
                trouble = f"{error.text}; trying again"
            width, height = shutil.get_terminal_size()
            drawn: list[str] = []
            if found is not None:
                drawn = lines(found, width, height - 1, output, self._sort, KEYS)
            if trouble:
                drawn[:1] = [output.paint(cut(trouble, width), RED)]
            show(drawn)
            await self._wait()

    def _key(self) -> None:
        for key in os.read(sys.stdin.fileno(), 64).decode(errors="replace") or "q":
            if key in {"q", "Q", "\x03", "\x04"}:
                self._end()
            elif key == "s":
                self._sort = SORTS[(SORTS.index(self._sort) + 1) % len(SORTS)]
                self._wake.set()
            elif key == " ":
                self._wake.set()

    def _end(self) -> None:
        self._is_over = True
        self._wake.set()


# -- what is drawn -------------------------------------------------------------------------------


def lines(
    found: View, width: int, height: int, output: Output, sort: str, keys: str = ""
) -> list[str]:
    """One screen, no line wider than the terminal, no more lines than it has.

    `keys` says which keys there are, where there is a keyboard.
    """
    colour = {"ok": GREEN, "degraded": YELLOW}.get(found.health, RED)
    first = (
        f"{time.strftime('%H:%M:%S', time.localtime(found.at))}  health {found.health}  "
        f"{plural(found.topics, 'topic')}  {plural(found.subscriptions, 'subscription')}  "
        f"{plural(found.consumers, 'consumer')}"
    )
    second = (
        f"in {rate(found.in_s)}/s  out {rate(found.out_s)}/s  "
        f"{plural(found.messages_held, 'message')} held  {size(found.disk_bytes)} on disk"
    )
    third = found.reasons[0] if found.reasons else f"by {sort}{keys}"
    name_width = max(_NAME_MIN, width - sum(_WIDTHS) - 2 * len(_WIDTHS))
    titles = "  ".join(
        ["TOPIC".ljust(name_width)]
        + [title.rjust(each) for title, each in zip(_COLUMNS, _WIDTHS, strict=True)]
    )
    head = [
        output.paint(cut(first, width), colour),
        cut(second, width),
        cut(third, width),
        output.paint(cut(titles, width), BOLD),
    ]
    room = max(0, height - len(head))
    body = [cut(_line(row, name_width), width) for row in found.rows[:room]]
    if len(found.rows) > room > 0:
        body[-1] = cut(f"… and {number(len(found.rows) - room + 1)} more topics", width)
    return head + body


def _line(row: TopicRow, name_width: int) -> str:
    cells = (
        rate(row.in_s),
        rate(row.out_s),
        number(row.backlog),
        "–" if row.oldest_s is None else duration(row.oldest_s),
        number(row.messages),
        size(row.bytes),
        number(row.consumers),
    )
    name = cut(printable(row.topic.encode()), name_width)
    padded = [cell.rjust(each) for cell, each in zip(cells, _WIDTHS, strict=True)]
    return "  ".join([name.ljust(name_width), *padded])


def rate(value: float) -> str:
    """Messages a second: whole above ten, one digit below."""
    return number(round(value)) if value >= 10 or value == 0 else f"{value:.1f}"  # noqa: PLR2004


def cut(text: str, width: int) -> str:
    """The text in one line, no wider than the terminal."""
    text = " ".join(text.splitlines())
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


# -- the terminal --------------------------------------------------------------------------------


def show(drawn: list[str]) -> None:
    """Draws from the top left corner; what is left of an older screen is cleared."""
    sys.stdout.write("\x1b[H" + "".join(f"{line}\x1b[K\r\n" for line in drawn) + "\x1b[J")
    sys.stdout.flush()


@contextlib.contextmanager
def terminal() -> Iterator[bool]:
    """A second screen and single keys, until the block is left; then all is as it was."""
    import termios
    import tty

    is_keyboard = is_terminal(sys.stdin)
    before = termios.tcgetattr(sys.stdin.fileno()) if is_keyboard else None
    sys.stdout.write(_ENTER)
    sys.stdout.flush()
    try:
        if is_keyboard:
            tty.setcbreak(sys.stdin.fileno())
        yield is_keyboard
    finally:
        if before is not None:
            termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, before)
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()


COMMAND = Command(
    "top",
    "a live view of topics, rates, backlogs and the oldest unacked message",
    "top\ntop --sort backlog --interval 5s\ntop --once --json",
    add,
    run,
    details="IN/S and OUT/S are messages published and acked; BACKLOG is what the slowest\n"
    "subscription has not acked, OLDEST the age of its first message. s changes the order, q\n"
    "quits. Into a pipe, one report for each interval.",
)
