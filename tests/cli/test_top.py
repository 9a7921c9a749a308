import codecs
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.output import Output
from penstock.cli.sample import TopicRow, View
from penstock.cli.top import KEYS, cut, lines, rate
from tests.cli.conftest import Penstock, broker_url


def seen(count: int, **changes: Any) -> View:
    rows = [TopicRow(f"topic-{n}", 1.5, 1000.0, 12, 3, 4_000, 2, 61.0) for n in range(count)]
    found = View(0.0, "ok", [], count, 1, 2, 30.0, 0.0, 5, 6_000_000, rows)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (40, 10), (10, 3), (1, 1)])
def test_a_screen_fits_the_terminal(width: int, height: int) -> None:
    drawn = lines(seen(100), width, height, Output(), "traffic")
    assert len(drawn) <= max(height, 4)
    assert all(len(line) <= width for line in drawn)


def test_what_does_not_fit_is_counted() -> None:
    drawn = lines(seen(100), 120, 14, Output(), "traffic")
    assert drawn[-1] == "… and 91 more topics"
    assert len(lines(seen(3), 120, 14, Output(), "traffic")) == 7


def test_the_columns() -> None:
    drawn = lines(seen(1), 110, 14, Output(), "traffic")
    titles = " ".join(drawn[3].split())
    assert titles == "TOPIC IN/S OUT/S BACKLOG OLDEST MESSAGES BYTES CONSUMERS"
    assert re.split(r"\s{2,}", drawn[4].strip()) == [
        "topic-0", "1.5", "1,000", "12", "61 s", "3", "4.0 kB", "2",
    ]  # fmt: skip
    assert drawn[2] == "by traffic"


def test_trouble_is_shown() -> None:
    drawn = lines(
        seen(1, health="degraded", reasons=["the disk\nis full"]), 80, 9, Output(), "name"
    )
    assert "degraded" in drawn[0]
    assert drawn[2] == "the disk is full"


def test_numbers_for_people() -> None:
    assert [rate(each) for each in (0, 0.25, 9.96, 10.4, 12345.6)] == [
        "0", "0.2", "10.0", "10", "12,346",
    ]  # fmt: skip
    assert cut("a\nb", 10) == "a b"
    assert cut("abcdef", 4) == "abc…"


def test_once_for_machines(penstock: Penstock) -> None:
    penstock("pub", "orders", "a")
    answer = penstock("top", "--once", "--json", "--interval", "100ms")
    assert answer.code == 0
    found = answer.json()
    assert found["health"] == "ok"
    assert [row["topic"] for row in found["rows"]] == ["orders"]


def test_once_for_people_and_every_order(penstock: Penstock) -> None:
    penstock("pub", "orders", "a")
    for sort in ("traffic", "backlog", "oldest", "name"):
        answer = penstock("top", "--once", "--interval", "50ms", "--sort", sort)
        assert answer.code == 0
        assert "orders" in answer.out


def test_a_broker_that_is_not_there(penstock: Penstock) -> None:
    assert penstock("top", "--once").code == 3


class Screen:
    """`penstock top` on a terminal of its own."""

    def __init__(self, folder: Path) -> None:
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (20, 90))
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "top", "--interval", "100ms"],
            cwd=folder,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=os.environ | {"TERM": "xterm", "PENSTOCK_URL": broker_url()},
        )
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()  # a read may end in a character

    def until(self, text: str) -> None:
        deadline = time.monotonic() + 120
        while text not in self.text:
            assert time.monotonic() < deadline, self.text
            self._read(1.0)

    def _read(self, timeout_s: float) -> bool:
        """Reads what is there; False when there is nothing."""
        ready, _, _ = select.select([self.master], [], [], timeout_s)
        if ready:
            self.text += self._decoder.decode(os.read(self.master, 65536))
        return bool(ready)

    def press(self, key: bytes) -> None:
        os.write(self.master, key)

    def ended(self) -> int:
        deadline = time.monotonic() + 120
        while self.process.poll() is None:
            assert time.monotonic() < deadline, self.text
            self._read(0.05)  # a terminal that is not read blocks its writer
        while self._read(0):
            pass
        assert termios.tcgetattr(self.slave) == self.before
        assert self.text.rstrip().endswith("\x1b[?1049l")
        return self.process.returncode

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)
        os.close(self.slave)


@pytest.mark.parametrize("end", [b"q", signal.SIGINT, signal.SIGTERM])
def test_the_screen_ends_and_the_terminal_is_as_before(
    penstock: Penstock, here: Path, end: bytes | signal.Signals
) -> None:
    penstock("pub", "orders", "a")
    screen = Screen(here)
    try:
        screen.until("orders")
        screen.press(b"s")
        screen.until("by backlog")
        termios.tcsetwinsize(screen.slave, (8, 60))
        screen.process.send_signal(signal.SIGWINCH)
        if isinstance(end, bytes):
            screen.press(end)
        else:
            screen.process.send_signal(end)
        assert screen.ended() == 0
    finally:
        screen.close()


def test_a_report_names_no_keys_and_counts_in_words(penstock: Penstock) -> None:
    penstock("pub", "t", "x")
    text = penstock("top", "--once", "--interval", "0.05").out
    assert "q quits" not in text
    assert "1 topic  0 subscriptions  0 consumers" in text
    assert "1 message held" in text
    assert "s sorts, q quits" in lines(seen(1), 110, 14, Output(), "traffic", KEYS)[2]
