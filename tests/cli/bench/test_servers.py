import shutil
import socket
import sys
from pathlib import Path

import pytest

from penstock.cli.bench import servers

LISTEN = """
import socket, sys, time
with socket.create_server(("127.0.0.1", int(sys.argv[1]))) as door:
    print("ready to serve", flush=True)
    time.sleep(600)
"""


def _listener(folder: Path, ready_line: str | None = None) -> servers.Server:
    port = servers.free_port()
    command = [sys.executable, "-c", LISTEN, str(port)]
    return servers.Server(command, port, folder, ready_line=ready_line)


@pytest.mark.parametrize("ready_line", [None, "ready to serve"])
def test_a_server_starts_answers_and_starts_again_on_its_port(
    tmp_path: Path, ready_line: str | None
) -> None:
    server = _listener(tmp_path / "new", ready_line).start()
    try:
        first = server.pid
        assert server.resident_bytes() > 0
        socket.create_connection(("127.0.0.1", server.port)).close()
        server.kill()
        assert server.start().pid != first
        assert server.text_of_log().count("ready to serve") >= 1
    finally:
        server.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", server.port)).close()


def test_one_that_ends_at_once_tells_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no room')"]
    with pytest.raises(servers.NotReady, match="ended at its start: no room"):
        servers.Server(command, servers.free_port(), tmp_path).start()


def test_one_that_never_answers_is_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    server = servers.Server(command, servers.free_port(), tmp_path, ready_s=0.2)
    with pytest.raises(servers.NotReady, match="does not answer on 127"):
        server.start()
    with pytest.raises(AssertionError, match="not running"):
        server.resident_bytes()


def test_another_port_is_tried(tmp_path: Path) -> None:
    tried: list[int] = []

    def make(port: int) -> servers.Server:
        tried.append(port)
        good = [sys.executable, "-c", LISTEN, str(port)]
        bad = [sys.executable, "-c", "raise SystemExit('port in use')"]
        return servers.Server(bad if len(tried) == 1 else good, port, tmp_path)

    with servers.running(make) as server:
        assert server.address == f"127.0.0.1:{tried[1]}"

    with (
        pytest.raises(servers.NotReady, match="port in use"),
        servers.running(
            lambda port: servers.Server(
                [sys.executable, "-c", "raise SystemExit('port in use')"], port, tmp_path
            )
        ),
    ):
        pass


def test_what_is_missing_is_named_with_the_way_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(servers.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda _program: None)
    with pytest.raises(servers.Missing, match="make servers ARGS=nats"):
        servers.nats(tmp_path)
    with pytest.raises(servers.Missing, match="make servers ARGS=kafka"):
        servers.folder_of("kafka")


def test_the_cache_comes_before_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(servers.CACHE_VARIABLE, str(tmp_path))
    assert servers.program_of("shell", "sh") == Path(shutil.which("sh") or "")
    cached = tmp_path / "servers" / "shell" / "current"
    cached.mkdir(parents=True)
    (cached / "sh").touch()
    assert servers.program_of("shell", "sh") == cached / "sh"
    assert servers.folder_of("shell") == cached


def test_what_is_synced_is_in_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(servers.CACHE_VARIABLE, str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda program: f"/bin/{program}")
    servers.nats(tmp_path / "a")(1)
    assert "sync_interval" not in (tmp_path / "a" / "nats.conf").read_text()
    servers.nats(tmp_path / "b", sync="always")(1)
    assert "sync_interval: always" in (tmp_path / "b" / "nats.conf").read_text()
    command = servers.redis(tmp_path, fsync="always")(1)._command
    assert command[command.index("--appendfsync") + 1] == "always"
