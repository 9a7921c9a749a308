"""Clients that nobody here wrote: `nc` and `telnet`, against a listener in a process of its own."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from penstock.cli.bench import servers
from tests.servers.fixtures import available

ROOT = Path(__file__).parents[2]
CHILD = Path(__file__).with_name("lines_child.py")
PATIENCE_S = 60.0


def _tool(name: str, program: str) -> str:
    return str(available(lambda: servers.program_of(name, program)))


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, str, "subprocess.Popen[str]"]]:
    """Host, port and process of a listener."""
    with subprocess.Popen(
        [sys.executable, str(CHILD), str(folder)],
        env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}"},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            host, _, port = process.stdout.readline().strip().partition(":")
            yield host, port, process
            assert process.poll() is None or process.returncode < 0
            process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()


class Terminal:
    """A program that a person types into, and the lines it shows."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            bufsize=0,
        )  # fmt: skip
        self._shown: Queue[str | None] = Queue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._shown.put(line.decode().rstrip("\r\n"))
        self._shown.put(None)

    def type(self, text: str | bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n" if isinstance(text, str) else text)

    def line(self) -> str | None:
        """The next line; None when the program ended."""
        try:
            return self._shown.get(timeout=PATIENCE_S)
        except Empty:
            raise AssertionError("nothing was shown") from None

    def expect(self, beginning: str) -> str:
        line = self.line()
        assert line is not None
        assert line.startswith(beginning), line
        return line

    def event(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.expect("{"))
        return found

    def kill(self) -> None:
        self.process.kill()
        self.close()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(PATIENCE_S)
        self._thread.join(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@contextmanager
def terminal(*command: str) -> Iterator[Terminal]:
    opened = Terminal(*command)
    try:
        yield opened
    finally:
        opened.kill()


def test_netcat_publishes_subscribes_and_acks(tmp_path: Path) -> None:
    nc = _tool("netcat", "nc")
    with (
        serving(tmp_path) as (host, port, _),
        terminal(nc, host, port) as alice,
        terminal(nc, host, port) as bob,
    ):
        alice.expect("welcome to penstock")
        alice.type("sub tweets")
        alice.expect("error: topic tweets does not exist")
        bob.expect("welcome")
        bob.type('pub tweets {"id":"1", "priority": 3, "msg":"tweet 1"}')
        bob.expect("ok 1")
        alice.type("sub tweets")
        alice.expect("successfully subscribed to topic tweets")
        for id, priority in ((2, 1), (3, 1), (4, 7)):
            bob.type(f'pub tweets {{"id":{id},"priority":{priority},"msg":{{"n":{id}}}}}')
            bob.expect(f"ok {id}")
        for id in (2, 4, 3):
            assert alice.event()["msg"] == {"n": id}
            alice.type(f"ack tweets {id}")
            alice.expect(f"ok {id}")
        alice.type("quit")
        alice.expect("bye")


def test_a_script_is_piped_into_netcat(tmp_path: Path) -> None:
    nc = _tool("netcat", "nc")
    with serving(tmp_path) as (host, port, _):
        script = b'pub t {"id":1,"msg":"a"}\nfrob\npub t {"id":2,"msg":"b"}\npeek t\nquit\n'
        done = subprocess.run(
            [nc, host, port], input=script, capture_output=True, timeout=PATIENCE_S, check=False
        )
        lines = done.stdout.decode().split("\r\n")
        assert lines[1:] == [
            "ok 1",
            "error: unknown command: frob; type help for a list",
            "ok 2",
            "ok 2",
            '  {"topic":"t","id":"1","priority":0,"msg":"a"}',
            '  {"topic":"t","id":"2","priority":0,"msg":"b"}',
            "bye",
            "",
        ]


def test_whoever_types_into_telnet_what_help_says_is_understood(tmp_path: Path) -> None:
    telnet = _tool("telnet", "telnet")
    with serving(tmp_path) as (host, port, _), terminal(telnet, host, port) as alice:
        for _ in range(3):
            alice.line()  # what telnet says itself
        alice.expect("welcome to penstock: type help")
        alice.type("help")
        count = int(alice.expect("ok ").split()[1])
        shown = [alice.expect("  ") for _ in range(count)]
        first, sub, second, ack = shown[shown.index("  try it:") + 1 : -1]
        alice.type(first.strip())
        alice.expect("ok 1")
        alice.type(sub.strip())
        alice.expect("successfully subscribed to topic tweets")
        alice.type(second.strip())
        both = [alice.line(), alice.line()]
        assert "ok 2" in both
        assert any(line is not None and line.startswith('{"topic":"tweets"') for line in both)
        alice.type(ack.strip())
        alice.expect("ok 2")
        alice.type("quit")
        alice.expect("bye")


def test_a_name_survives_a_killed_terminal_and_a_killed_broker(tmp_path: Path) -> None:
    nc = _tool("netcat", "nc")
    with serving(tmp_path) as (host, port, process):
        with terminal(nc, host, port) as alice:
            alice.expect("welcome")
            for text in ("id alice", 'pub t {"id":0}'):
                alice.type(text)
                alice.expect("ok")
            alice.type("sub t")
            alice.expect("successfully")
            for number, priority in ((1, 1), (2, 2), (3, 9)):
                alice.type(f'pub t {{"id":{number},"priority":{priority}}}')
            shown = [alice.line() for _ in range(4)]
            assert [line for line in shown if line and line.startswith("ok")] == [
                "ok 1", "ok 2", "ok 3",
            ]  # fmt: skip
            alice.kill()
        with terminal(nc, host, port) as alice:
            alice.expect("welcome")
            alice.type("id alice")
            alice.expect("ok alice")
            alice.type("sub t")
            alice.expect("successfully")
            assert alice.event()["id"] == "3"
            alice.type("ack t 3")
            alice.expect("ok 3")
            alice.event()
            process.kill()
            process.wait(PATIENCE_S)
    with serving(tmp_path) as (host, port, _), terminal(nc, host, port) as alice:
        alice.expect("welcome")
        alice.type("id alice")
        alice.expect("ok alice")
        alice.type("sub t")
        alice.expect("successfully")
        for id in ("2", "1"):
            assert alice.event()["id"] == id
            alice.type(f"ack t {id}")
            alice.expect(f"ok {id}")
