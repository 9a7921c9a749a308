"""The socket in a store's folder: private, short to name, replaced when stale, closed in children."""

import asyncio
import os
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from penstock.drivers.owner import SOCKET, OwnerSocket, bound, remove_socket, socket_path
from penstock.journal.disk import FolderDisk


def test_the_store_does_not_take_it_for_a_file_of_its_own(tmp_path: Path) -> None:
    assert SOCKET == FolderDisk.SOCKET
    with bound(tmp_path):
        disk = FolderDisk(tmp_path)
        assert disk.names() == []
        disk.close()


def test_only_its_owner_may_connect_whatever_the_mask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with bound(tmp_path):
            mode = (tmp_path / SOCKET).stat().st_mode
    finally:
        os.umask(before)
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_a_deep_folder_is_no_problem(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["x" * 50] * 6)
    deep.mkdir(parents=True)
    with bound(deep) as listening, socket.socket(socket.AF_UNIX) as client:
        with socket_path(deep) as path:
            assert len(path) < 100
            client.connect(path)
        accepted, _ = listening.accept()
        accepted.close()


def test_without_proc_only_a_short_path_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda _: False)
    with socket_path(Path("/short")) as path:
        assert path == f"/short/{SOCKET}"
    with pytest.raises(OSError, match="too long"), socket_path(Path("/" + "x" * 200)):
        pass


def test_the_socket_of_a_dead_owner_is_replaced(tmp_path: Path) -> None:
    bound(tmp_path).close()
    assert (tmp_path / SOCKET).is_socket()
    with bound(tmp_path), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / SOCKET))


def test_a_file_of_that_name_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / SOCKET).write_text("mine")
    with pytest.raises(OSError, match="in use"):
        bound(tmp_path)
    assert (tmp_path / SOCKET).read_text() == "mine"


def test_removing_twice_is_harmless(tmp_path: Path) -> None:
    bound(tmp_path).close()
    remove_socket(tmp_path)
    remove_socket(tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- the thread ----------------------------------------------------------------------------------


class Echo:
    """Serves by sending back what comes."""

    def __init__(self) -> None:
        self.times = 0

    async def serve(self, listening: socket.socket, stopped: asyncio.Event) -> None:
        self.times += 1

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while data := await reader.read(100):
                writer.write(data)
            writer.close()

        server = await asyncio.start_unix_server(answer, sock=listening)
        await stopped.wait()
        server.close()


@contextmanager
def connected(folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(30)
        client.connect(str(folder / SOCKET))
        yield client


def test_nothing_is_served_until_somebody_comes(tmp_path: Path) -> None:
    echo = Echo()
    listening = OwnerSocket(tmp_path, echo.serve)
    try:
        assert echo.times == 0
        for _ in range(2):
            with connected(tmp_path) as client:
                client.sendall(b"hello")
                assert client.recv(100) == b"hello"
        assert echo.times == 1
    finally:
        listening.close()
        listening.close()
    assert list(tmp_path.iterdir()) == []
    assert "penstock-owner" not in {thread.name for thread in threading.enumerate()}


def test_closing_what_nobody_used_is_quick(tmp_path: Path) -> None:
    echo = Echo()
    OwnerSocket(tmp_path, echo.serve).close()
    assert echo.times == 0


def test_a_defect_in_serving_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    async def broken(listening: socket.socket, stopped: asyncio.Event) -> None:
        raise RuntimeError("no")

    listening = OwnerSocket(tmp_path, broken)
    with connected(tmp_path) as client, suppress(ConnectionResetError):
        assert client.recv(1) == b""
    listening.close()
    assert "cannot use the store" in caplog.text


def test_a_forked_child_keeps_nothing_of_it(tmp_path: Path) -> None:
    listening = OwnerSocket(tmp_path, Echo().serve)
    descriptors = (listening._socket, listening._read, listening._write)
    listening.forget()
    for descriptor in descriptors:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
