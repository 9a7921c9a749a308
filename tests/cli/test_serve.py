"""`penstock serve` as a person starts it: ready, reloaded, drained, forced, refused."""

import os
import signal
import socket
import time
from pathlib import Path
from subprocess import PIPE, Popen
from sys import executable

import pytest

import penstock as library
from penstock.cli.serve import kept
from penstock.server.settings import ServeSettings
from penstock.vocabulary.errors import AddressInUse
from tests.cli.conftest import Penstock
from tests.cli.served import PATIENCE_S, ServeProcess


def test_it_is_ready_serves_and_stops_in_good_order(here: Path) -> None:
    with ServeProcess(here).wait_ready() as server:
        ready = server.ready
        assert ready["data"] == str(here / "penstock-data")
        assert ready["durability"] == "synced"
        assert ready["pid"] == server.process.pid
        assert set(ready["listening"]) == {"socket", "frames", "lines", "http"}
        with library.connect_blocking(server.url) as client:
            client.publish("orders", b"x")
        server.send(signal.SIGTERM)
        code, err = server.ended()
    assert code == 0, err
    assert "stopped in good order" in err
    with library.connect_blocking(f"file:{here / 'penstock-data'}") as client:
        assert client.stats()["recovery"]["is_clean"]
        assert len(client.peek("orders")) == 1


def test_interrupt_stops_it_too_and_idle_consumers_do_not_delay_that(here: Path) -> None:
    with ServeProcess(here, PENSTOCK_SERVE_DRAIN_S="600").wait_ready() as server:
        client = library.connect_blocking(server.url).open()
        with client.subscribe("orders", "billing"):
            server.send(signal.SIGINT)
            code, err = server.ended()
        client.close()
    assert code == 0, err


def test_a_second_signal_ends_it_at_once_and_nothing_confirmed_is_lost(here: Path) -> None:
    with ServeProcess(here, PENSTOCK_SERVE_DRAIN_S="600").wait_ready() as server:
        client = library.connect_blocking(server.url).open()
        client.publish_many("orders", [b"%d" % number for number in range(100)])
        deliveries = client.subscribe("orders", "billing")
        deliveries.__enter__()
        assert deliveries.receive(timeout_s=PATIENCE_S) is not None
        server.send(signal.SIGTERM)
        while "finishing" not in _line(server):
            pass
        server.send(signal.SIGTERM)
        assert server.process.wait(PATIENCE_S) == 1
        server.ended()
        client.close()
    with library.connect_blocking(f"file:{here / 'penstock-data'}") as after:
        assert len(after.peek("orders", 1_000)) == 100


def _line(server: ServeProcess) -> str:
    assert server.process.stderr is not None
    line = server.process.stderr.readline()
    assert line
    return line


def test_a_reload_changes_what_it_can_and_says_the_rest(here: Path) -> None:
    (here / "penstock.toml").write_text('[lines.commands]\npublish = ["pub"]\n')
    with ServeProcess(here).wait_ready() as server:
        (here / "penstock.toml").write_text(
            '[serve]\ndata = "elsewhere"\nlog_format = "json"\n'
            '[lines.commands]\npublish = ["say"]\n'
        )
        server.send(signal.SIGHUP)
        while "reloaded" not in (line := _line(server)):
            pass
        assert "serve.log_format, lines.commands" in line
        assert '"only a restart changes serve.data"' in _line(server)
        assert "error" not in _said(server.address("lines"), 'say orders {"id": "1"}')
        (here / "penstock.toml").write_text("[serve]\nprot = 1\n")
        server.send(signal.SIGHUP)
        assert "not reloaded: penstock.toml: [serve] has no key `prot`" in _line(server)
        server.send(signal.SIGTERM)
        assert server.ended()[0] == 0


def _said(address: str, line: str) -> str:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as client:
        client.sendall(f"{line}\r\nquit\r\n".encode())
        found = b""
        while data := client.recv(65536):
            found += data
    return found.decode()


def test_it_recovers_after_a_kill(here: Path) -> None:
    with ServeProcess(here).wait_ready() as server:
        with library.connect_blocking(server.url) as client:
            client.publish("orders", b"x")
        server.send(signal.SIGKILL)
        server.ended()
    assert (here / "penstock-data" / "socket").is_socket()
    with ServeProcess(here).wait_ready() as server:
        assert server.ready["messages_held"] == 1
        assert server.ready["recovery"]["is_clean"] is False


def test_the_banner_says_where_the_data_is_and_how_to_try_it(here: Path) -> None:
    command = [executable, "-m", "penstock", "serve", "--port", "0", "--http-port", "0"]
    process = Popen([*command, "--line-port", "off"], cwd=here, stdout=PIPE, stderr=PIPE, text=True)
    with process:
        assert process.stdout is not None
        found = ""
        while "Ctrl-C" not in found:
            line = process.stdout.readline()
            assert line
            found += line
        process.terminate()
        process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert f"serves {here / 'penstock-data'}" in found
    assert "durability: synced" in found
    assert "penstock pub orders 'hello' --url penstock://127.0.0.1:" in found
    assert "curl http://127.0.0.1:" in found
    assert "telnet" not in found


# -- refused -------------------------------------------------------------------------------------


def test_a_busy_port_is_one_line(penstock: Penstock) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        answer = penstock("serve", "--port", str(port), "--line-port", "0", "--http-port", "0")
    assert answer.code == 1
    assert len(answer.err.splitlines()) == 1
    assert f"port {port} of 127.0.0.1" in answer.err
    assert "--port PORT" in answer.err


def test_none_of_the_ports_is_kept_when_one_is_busy() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(AddressInUse):
            kept(ServeSettings(port=0, line_port=0, http_port=other.getsockname()[1]))


def test_a_store_in_use_is_named(penstock: Penstock, here: Path) -> None:
    with library.connect_blocking("file:./penstock-data"):
        answer = penstock("serve", "--port", "0", "--line-port", "0", "--http-port", "0", "--json")
    assert (answer.code, answer.error()["code"]) == (3, "store-in-use")
    assert str(os.getpid()) in answer.error()["text"]


def test_a_folder_of_other_files_is_refused(penstock: Penstock, here: Path) -> None:
    (here / "photos").mkdir()
    (here / "photos" / "cat.jpg").write_bytes(b"meow")
    answer = penstock(
        "serve", "--data", "photos", "--port", "0", "--http-port", "off", "--line-port", "off"
    )
    assert answer.code == 3
    assert "[not-a-store]" in answer.err


def test_a_folder_that_cannot_be_made_is_named(penstock: Penstock, here: Path) -> None:
    (here / "file").write_text("x")
    answer = penstock(
        "serve", "--data", "file/below", "--port", "0", "--http-port", "off", "--line-port", "off"
    )
    assert answer.code == 3
    assert "is a file, or lies in one" in answer.err


def test_a_folder_everybody_may_write_to_is_refused(penstock: Penstock, here: Path) -> None:
    (here / "open").mkdir()
    (here / "open").chmod(0o777)
    answer = penstock(
        "serve", "--data", "open", "--port", "0", "--http-port", "off", "--line-port", "off"
    )
    assert answer.code == 1
    assert f"chmod 700 {here / 'open'}" in answer.err
    assert list((here / "open").iterdir()) == []


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "example.org"])
def test_an_open_address_needs_a_word(penstock: Penstock, host: str) -> None:
    answer = penstock("serve", "--host", host)
    assert answer.code == 2
    assert "--insecure-listen" in answer.err
    assert len(answer.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--port", "x"], "--port must be a whole number from 0 to 65535 or 'off', not 'x'"),
        (["--config", "missing.toml"], "no configuration file missing.toml"),
        (["--url", "file:x"], "--data DIR"),
        (["--port", "off", "--line-port", "off", "--http-port", "off"], "every port is off"),
    ],
)
def test_a_wrong_command_line_is_one_line(penstock: Penstock, words: list[str], text: str) -> None:
    answer = penstock("serve", *words)
    assert answer.code == 2
    assert text in answer.err


def test_it_can_be_told_to_create_no_topics_by_itself(here: Path, penstock: Penstock) -> None:
    with ServeProcess(here, "--no-auto-create-topics").wait_ready() as server:
        url = f"penstock://{server.address('frames')}"
        answer = penstock("pub", "orders", "x", "--url", url)
        assert answer.code != 0
        assert "penstock topics create orders" in answer.err
        assert penstock("topics", "create", "orders", "--url", url).code == 0
        assert penstock("pub", "orders", "x", "--url", url).code == 0
        server.send(signal.SIGTERM)
        assert server.ended()[0] == 0


def test_it_can_be_told_to_listen_everywhere(here: Path) -> None:
    with ServeProcess(here, "--host", "0.0.0.0", "--insecure-listen").wait_ready() as server:
        assert server.address("frames").startswith("0.0.0.0:")
        began = time.monotonic()
        server.send(signal.SIGTERM)
        assert server.ended()[0] == 0
        assert time.monotonic() - began < PATIENCE_S
