"""`penstock run`: applications with capability files, as a person starts them."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.bench.servers import Server, program_of
from penstock.client import application as applications
from tests.cli.conftest import Penstock
from tests.client.test_capability_file import printed
from tests.servers.fixtures import available

PATIENCE_S = 120
PULL = """
from penstock import Event, publish, receive
for name in ("ann", "bob"):
    publish(f"user/{name}", Event("", "test", "hello", name))
for _ in range(2):
    print("Received message:", receive("user/+").data, flush=True)
"""
PUSH = """
from penstock import Event, register_message

@register_message
def on_message(msg: Event):
    print("Received message:", msg, flush=True)
"""
SEND = """
import penstock
event = penstock.Event(id="my-message-id", source="my-source", type="my-type", data="my-data")
penstock.publish("group", event)
"""
FILE = """
specversion = "0.2"
[[capability]]
name = "pubsub.penstock"
[[capability.config]]
url = "file:./data"
queue = "orders"
delivery = "pull"
"""


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[None]:
    """mosquitto on its usual port, which the printed files name."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", 1883))
        except OSError:
            pytest.skip("another program uses port 1883")
    program = available(lambda: program_of("mosquitto", "mosquitto"))
    folder = tmp_path / "mosquitto"
    folder.mkdir()
    (folder / "c").write_text(
        "listener 1883 127.0.0.1\nallow_anonymous true\nuser root\n", encoding="utf-8"
    )
    server = Server([str(program), "-c", str(folder / "c")], 1883, folder)
    server.start()
    yield
    server.stop()


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(applications, "_current", None)
    monkeypatch.setattr(applications, "_handlers", {})


def started(folder: Path, app: str, file: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "penstock", "run", app, "--capabilities", file]
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
    return subprocess.Popen(
        command, cwd=folder, env=kept, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


@pytest.mark.usefixtures("broker")
def test_the_printed_files_work_unchanged(tmp_path: Path) -> None:
    pull, push = printed()
    for name, text in {
        "pull.toml": pull, "push.toml": push, "pull.py": PULL, "push.py": PUSH, "send.py": SEND,
    }.items():  # fmt: skip
        (tmp_path / name).write_text(text, encoding="utf-8")
    receiver = started(tmp_path, "push.py", "push.toml")
    with receiver:
        assert receiver.stderr is not None
        assert receiver.stdout is not None
        try:
            assert "handlers are called" in receiver.stderr.readline()
            with started(tmp_path, "pull.py", "pull.toml") as puller:
                out, err = puller.communicate(timeout=PATIENCE_S)
            assert (puller.returncode, sorted(out.splitlines())) == (
                0,
                ["Received message: ann", "Received message: bob"],
            ), err
            with started(tmp_path, "send.py", "pull.toml") as sender:
                assert sender.communicate(timeout=PATIENCE_S) == ("", "")
            assert receiver.stdout.readline() == (
                "Received message: Event(id='my-message-id', source='my-source', type='my-type', "
                "data='my-data')\n"
            )
            receiver.send_signal(signal.SIGTERM)
            assert receiver.wait(PATIENCE_S) == 0
        finally:
            receiver.kill()


def written(here: Path, app: str, file: str = FILE) -> tuple[str, ...]:
    (here / "app.py").write_text(app, encoding="utf-8")
    (here / "c.toml").write_text(file, encoding="utf-8")
    return "run", "app.py", "--capabilities", "c.toml"


def test_an_application_gets_its_arguments_and_gives_its_code(
    penstock: Penstock, here: Path
) -> None:
    words = written(here, "import sys, beside; print(sys.argv); sys.exit(beside.CODE)")
    (here / "beside.py").write_text("CODE = 7", encoding="utf-8")
    before = sys.argv
    answer = penstock(*words, "--arg=--fast", "--arg", "x", "--name", "worker")
    assert (answer.code, answer.out) == (7, "['app.py', '--fast', 'x']\n")
    assert sys.argv is before
    sys.modules.pop("beside")
    assert penstock(*written(here, "raise SystemExit('no coffee')")).err == "no coffee\n"
    assert penstock(*written(here, "pass")).code == 0


def test_an_event_in_hand_comes_again_when_the_application_fails(
    penstock: Penstock, here: Path
) -> None:
    words = written(
        here,
        "import penstock\npenstock.publish('orders', penstock.Event(data='1'))\n"
        "penstock.receive('orders')\n1 / 0",
    )
    answer = penstock(*words)
    assert answer.code == 1
    assert "ZeroDivisionError" in answer.err
    words = written(
        here,
        "import penstock\nprint(penstock.receive('orders', timeout_s=20).data)\n"
        "print(penstock.receive('orders', timeout_s=0.05))",
    )
    answer = penstock(*words)
    assert (answer.code, answer.out) == (0, "1\nNone\n")


def test_another_broker_may_be_given(penstock: Penstock, here: Path) -> None:
    app = "import penstock; print(penstock.publish('orders', penstock.Event()).durability.value)"
    assert penstock(*written(here, app), "--url", "memory:").out == "memory\n"
    assert penstock(*written(here, app)).out == "synced\n"


@pytest.mark.parametrize(
    ("app", "file", "said"),
    [
        ("pass", FILE.replace("queue", "quue"), "c.toml: [[capability]] 1 'pubsub.penstock', "),
        ("pass", FILE.replace("=", ":"), "c.toml: is not TOML"),
        (
            "pass",
            FILE.replace('"pull"', '"push"\non_message = "on_message"'),
            "key 'on_message': no handler 'on_message' is registered",
        ),
        ("import penstock; penstock.receive('else')", FILE, "covers topic 'else'"),
    ],
)
def test_mistakes_are_told_in_one_error(
    penstock: Penstock, here: Path, app: str, file: str, said: str
) -> None:
    answer = penstock(*written(here, app, file))
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_several_mistakes_are_told_in_a_line_each(penstock: Penstock, here: Path) -> None:
    file = FILE.replace("queue", "quue").replace('"pull"', '"pul"')
    answer = penstock(*written(here, "pass", file))
    assert answer.code == 2
    first, *others = answer.err.splitlines()
    assert first.startswith("error: c.toml has 3 mistakes: [invalid-configuration]")
    assert len(others) == 3
    assert all(each.startswith("  c.toml: [[capability]] 1 ") for each in others)


def test_what_is_not_there_is_named(
    penstock: Penstock, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(here, "pass")
    assert "--capabilities FILE" in penstock("run", "app.py").err
    assert "no application 'else.py'" in penstock("run", "else.py", "--capabilities", "c.toml").err
    answer = penstock("run", "app.py", "--capabilities", "else.toml")
    assert (answer.code, "else.toml: No such file" in answer.err) == (2, True)
    monkeypatch.setenv(applications.VARIABLE, "c.toml")
    assert penstock("run", "app.py").code == 0
