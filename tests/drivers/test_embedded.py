"""One broker for each folder in a process, counted; loops and threads share it."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from penstock.broker.broker import Broker
from penstock.client.client import connect
from penstock.drivers import embedded
from penstock.drivers.embedded import EmbeddedDriver, Registry, folder_of, open_embedded
from penstock.vocabulary.errors import (
    Closed,
    InvalidArgument,
    NotAStore,
    StorageError,
    StoreInUse,
    UnknownTopic,
)

PATIENCE_S = 60
"""A busy disk takes a second for each sync."""


@pytest.mark.parametrize(
    ("url", "folder"),
    [
        ("file:data", Path.cwd() / "data"),
        ("file:./data", Path.cwd() / "data"),
        ("file:/var/data", Path("/var/data")),
        ("file:///var/data", Path("/var/data")),
        ("file:~/data", Path.home() / "data"),
    ],
)
def test_a_file_url_names_a_folder(url: str, folder: Path) -> None:
    assert folder_of(url) == folder.resolve()


@pytest.mark.parametrize("url", ["file:", "file://host/data", "file://data"])
def test_a_file_url_without_a_folder_is_refused(url: str) -> None:
    with pytest.raises(InvalidArgument):
        folder_of(url)


# -- what is not a store -------------------------------------------------------------------------


def _open_fails(folder: Path, error: type[Exception], text: str) -> None:
    async def scenario() -> None:
        with pytest.raises(error, match=text):
            await connect(f"file:{folder}")

    asyncio.run(scenario())
    assert f"file:{folder.resolve()}" not in embedded._registry._entries


def test_a_file_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("text")
    _open_fails(tmp_path / "data", NotAStore, "is a file")
    _open_fails(tmp_path / "data" / "below", NotAStore, "is a file, or lies in one")


def test_a_folder_with_other_files_is_not_a_store(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("text")
    _open_fails(tmp_path, NotAStore, "letter.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_without_permission_is_a_storage_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    _open_fails(tmp_path / "data", StorageError, "cannot be opened")


def test_a_folder_that_cannot_be_made_is_a_storage_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "mkdir", refuse)
    _open_fails(tmp_path / "data", StorageError, "Permission denied")


def test_a_store_that_another_process_has_open_is_in_use(tmp_path: Path) -> None:
    program = textwrap.dedent(
        f"""
        import asyncio, penstock
        async def main():
            async with penstock.connect("file:{tmp_path / "store"}"):
                print("open", flush=True)
                input()
        asyncio.run(main())
        """
    )
    other = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with other:
        assert other.stdout is not None
        assert other.stdout.readline() == "open\n"

        async def own() -> None:
            with pytest.raises(StoreInUse, match=str(other.pid)):
                await embedded.open_file(tmp_path / "store", asyncio.get_running_loop())

        asyncio.run(own())
        other.communicate("\n")


# -- sharing -------------------------------------------------------------------------------------


def test_a_folder_opened_twice_shares_one_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with connect(f"file:{tmp_path}/store") as one:
            (tmp_path / "link").symlink_to(tmp_path / "store")
            async with connect(f"file:{tmp_path}/link") as other:
                await one.publish("orders", b"x")
                assert len(await other.peek("orders")) == 1
            assert (await one.publish("orders", b"y")).offset == 1
        async with connect(f"file:{tmp_path}/store") as again:
            assert len(await again.peek("orders")) == 2
            assert (await again.stats())["recovery"]["is_clean"] is True

    asyncio.run(scenario())


def test_memory_without_a_name_is_private_and_with_a_name_shared() -> None:
    async def scenario() -> None:
        async with connect("memory:") as one, connect("memory:") as other:
            await one.publish("orders", b"x")
            with pytest.raises(UnknownTopic):
                await other.peek("orders")
        async with connect("memory:shared") as one, connect("memory:shared") as other:
            await one.publish("orders", b"x")
            assert len(await other.peek("orders")) == 1
        async with connect("memory:shared") as one:
            assert await one.topics() == []

    asyncio.run(scenario())


def test_two_loops_in_two_threads_share_one_broker(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'store'}"
    count = 2_000
    got: list[bytes | None] = []
    is_ready = threading.Event()

    def consume() -> None:
        async def scenario() -> None:
            async with connect(url) as client, client.subscribe("orders", "b") as deliveries:
                is_ready.set()
                async for message in deliveries:
                    got.append(message.body)
                    message.ack()
                    if len(got) == count:
                        return

        asyncio.run(scenario())

    consumer = threading.Thread(target=consume)
    consumer.start()
    assert is_ready.wait(PATIENCE_S)

    async def publish() -> None:
        async with connect(url) as client:
            await asyncio.gather(
                *(client.publish("orders", str(number)) for number in range(count // 2))
            )
            await client.publish_many("orders", [str(n) for n in range(count // 2, count)])

    asyncio.run(publish())
    consumer.join(PATIENCE_S)
    assert not consumer.is_alive()
    assert got == [str(number).encode() for number in range(count)]


def test_opening_at_the_same_time_from_many_threads_opens_once(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'store'}"
    errors: list[BaseException] = []

    def use(number: int) -> None:
        async def scenario() -> None:
            for _ in range(5):
                async with connect(url) as client:
                    await client.publish("orders", str(number))

        try:
            asyncio.run(scenario())
        except Exception as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert errors == []

    async def count() -> int:
        async with connect(url) as client:
            return len(await client.peek("orders"))

    assert asyncio.run(count()) == 20


def test_a_failed_opening_leaves_nothing_behind() -> None:
    registry = Registry()

    def fail() -> Broker:
        raise NotAStore("no")

    with pytest.raises(NotAStore):
        registry.acquire("x", fail)
    broker = registry.acquire("x", embedded.open_memory)
    assert registry.acquire("x", fail) is broker
    registry.release("x")
    assert [broker.engine.is_closed] == [False]
    registry.release("x")
    assert [broker.engine.is_closed] == [True]
    assert not registry._entries


def test_an_opening_that_is_cancelled_gives_its_broker_back(tmp_path: Path) -> None:
    async def scenario() -> None:
        client = connect(f"file:{tmp_path / 'store'}")
        opening = asyncio.create_task(client.open())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        for _ in range(1000):
            await asyncio.sleep(0.005)
            if not any(str(tmp_path) in key for key in embedded._registry._entries):
                return
        pytest.fail("the broker stayed open")

    asyncio.run(scenario())


def test_a_forked_child_does_not_use_the_brokers_of_its_parent() -> None:
    registry = Registry()
    broker = registry.acquire("x", embedded.open_memory)
    registry.forget()
    other = registry.acquire("x", embedded.open_memory)
    assert other is not broker
    broker.close()
    registry.release("x")


# -- the end of a loop ---------------------------------------------------------------------------


def test_consumers_of_a_dead_loop_swallow_no_messages() -> None:
    loop = asyncio.new_event_loop()

    async def leave_open() -> None:
        client = connect("memory:dead-loop")
        await client
        await client.subscribe("orders", "billing")

    async def live_on() -> None:
        async with connect("memory:dead-loop") as client:
            loop.close()
            await client.publish_many("orders", [b"x"] * 10)
            async with client.subscribe("orders", "billing") as deliveries:
                for _ in range(10):
                    message = await deliveries.receive(timeout_s=PATIENCE_S)
                    assert message is not None
                    message.ack()

    loop.run_until_complete(leave_open())
    asyncio.run(live_on())


def test_a_driver_closed_twice_releases_its_broker_once() -> None:
    async def scenario() -> None:
        one = await open_embedded("memory:twice", asyncio.get_running_loop())
        assert isinstance(one, EmbeddedDriver)
        other = one.again(asyncio.get_running_loop())
        await one.close()
        await one.close()
        assert other.partitions("orders") == 1
        await other.close()
        with pytest.raises(Closed):
            other.partitions("more")

    asyncio.run(scenario())
