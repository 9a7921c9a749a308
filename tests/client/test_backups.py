"""A backup through a client, while others publish and ack."""

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

import penstock
from penstock.journal.restoring import restore
from penstock.server.places import Place
from penstock.vocabulary.errors import InvalidArgument, StorageError, Unavailable
from tests.cli.served import ServeProcess


def bodies_in(folder: Path, topic: str) -> set[bytes]:
    with penstock.connect_blocking(f"file:{folder}") as client:
        return {message.body or b"" for message in client.peek(topic, 100_000)}


def test_what_was_confirmed_before_is_in_it_while_work_goes_on(tmp_path: Path) -> None:
    async def scenario() -> set[bytes]:
        async with penstock.connect(f"file:{tmp_path / 'data'}") as client:
            await client.create_subscription("orders", "audit")
            confirmed: set[bytes] = set()
            stop = asyncio.Event()

            async def publish() -> None:
                number = 0
                while not stop.is_set():
                    bodies = [b"%d" % n + b"x" * 200 for n in range(number, number + 100)]
                    await client.publish_many("orders", bodies)
                    await client.publish_many("done", bodies)
                    confirmed.update(bodies)
                    number += 100

            async def consume() -> None:
                async with client.subscribe("done", "all") as deliveries:
                    async for batch in deliveries.batches():
                        batch.ack()
                        if stop.is_set():
                            return

            tasks = [asyncio.create_task(publish()), asyncio.create_task(consume())]
            told: list[tuple[int, int]] = []
            for number in range(3):
                while len(confirmed) <= 100 * (number + 1):
                    assert not tasks[0].done()
                    await asyncio.sleep(0.01)
                before = set(confirmed)
                await client.backup(
                    tmp_path / f"{number}.tar", progress=lambda *seen: told.append(seen)
                )
            stop.set()
            await tasks[0]
            tasks[1].cancel()
            assert told[-1][0] == told[-1][1]
            return before

    before = asyncio.run(scenario())
    restore(tmp_path / "2.tar", tmp_path / "restored", lambda _: None)
    found = bodies_in(tmp_path / "restored", "orders")
    assert len(before) > 100
    assert before <= found


def test_the_blocking_twin_and_memory_can_do_it_too(tmp_path: Path) -> None:
    with penstock.connect_blocking("memory:") as client:
        client.publish("orders", b"a")
        client.backup(str(tmp_path / "copy"))
    restore(tmp_path / "copy", tmp_path / "restored", lambda _: None)
    assert bodies_in(tmp_path / "restored", "orders") == {b"a"}


def test_bad_places_are_refused_before_anything_is_copied(tmp_path: Path) -> None:
    (tmp_path / "there.tar").write_bytes(b"mine")
    with penstock.connect_blocking("memory:") as client:
        for out in ("/", tmp_path / "there.tar", tmp_path / "no" / "x.tar", tmp_path / "there.tar"):
            with pytest.raises(InvalidArgument):
                client.backup(out)


def test_a_disk_that_fails_leaves_no_backup(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with penstock.connect_blocking("memory:") as client:
        client.publish("orders", b"a")
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", full)
            with pytest.raises(StorageError, match="No space left"):
                client.backup(tmp_path / "x.tar")
        assert list(tmp_path.iterdir()) == []
        client.backup(tmp_path / "x.tar")


KILLED = """
import os, signal, sys, penstock
with penstock.connect_blocking("file:" + sys.argv[1]) as client:
    client.publish_many("orders", [b"x" * 1000] * 4000)
    def stop(done, total):
        if done > total // 2:
            os.kill(os.getpid(), signal.SIGKILL)
    client.backup(sys.argv[2], progress=stop)
"""


@pytest.mark.parametrize("name", ["out.tar", "out"])
def test_a_kill_leaves_nothing_that_looks_like_a_backup(tmp_path: Path, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", KILLED, tmp_path / "data", tmp_path / name], check=False, timeout=120
    )
    assert done.returncode == -signal.SIGKILL
    left = [path for path in tmp_path.iterdir() if path.name != "data"]
    assert [path.name.startswith(f"{name}.partial-") for path in left] == [True]
    with penstock.connect_blocking(f"file:{tmp_path / 'data'}") as client:
        client.backup(tmp_path / name)


def test_over_the_network_while_the_server_is_killed_and_started_again(tmp_path: Path) -> None:
    place = Place.keep("127.0.0.1", 0, "frames", "--port")  # nobody takes it between the two
    port = str(place.port)
    with closing(place.keeper), ServeProcess(tmp_path, "--port", port).wait_ready() as first:
        replaced: list[ServeProcess] = []

        def kill(done: int, total: int) -> None:
            if not replaced and done > total // 2:
                first.send(signal.SIGKILL)
                first.ended()
                replaced.append(ServeProcess(tmp_path, "--port", port).wait_ready())

        try:
            with penstock.connect_blocking(first.url) as client:
                client.publish_many("orders", [b"x" * 1000] * 4000)
                with pytest.raises(Unavailable, match="begin a new one"):
                    client.backup(tmp_path / "out.tar", progress=kill)
                assert [path.name for path in tmp_path.iterdir()] == ["penstock-data"]
                client.backup(tmp_path / "out.tar")
        finally:
            for each in replaced:
                with each:
                    each.send(signal.SIGTERM)
                    assert each.ended()[0] == 0
    restore(tmp_path / "out.tar", tmp_path / "restored", lambda _: None)
    assert len(bodies_in(tmp_path / "restored", "orders")) == 1
