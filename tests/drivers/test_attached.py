"""`file:` on a store another process has open: used through it, taken over when it goes."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import Client, connect
from penstock.drivers import attached, embedded
from penstock.drivers.attached import OwnerAddress
from penstock.drivers.owner import SOCKET
from penstock.drivers.remote import opening
from penstock.vocabulary.errors import StorageError, StoreInUse

OWNER = """
import sys, penstock
client = penstock.connect_blocking("file:" + sys.argv[1]).open()
client.publish("orders", b"from the owner")
print("open", flush=True)
sys.stdin.readline()
client.close()
print("closed", flush=True)
"""
PATIENCE_S = 60


class Owner:
    """Another process that has the store open."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", OWNER, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "open\n"

    def close(self) -> None:
        assert self.process.communicate("\n", timeout=PATIENCE_S)[0] == "closed\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def owner(folder: Path) -> Iterator[Owner]:
    found = Owner(folder)
    yield found
    if found.process.stdout is not None and not found.process.stdout.closed:
        found.kill()


def run(scenario: Callable[[Client], Coroutine[Any, Any, None]], folder: Path) -> None:
    async def main() -> None:
        async with connect(f"file:{folder}") as client:
            await scenario(client)

    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))


def key(folder: Path) -> str:
    return f"file:{folder.resolve()}"


def test_a_client_of_another_process_shares_the_store(folder: Path, owner: Owner) -> None:
    async def scenario(client: Client) -> None:
        assert client.capabilities.scheme == "file"
        receipt = await client.publish("orders", b"from outside")
        assert (receipt.offset, receipt.durability) == (1, "synced")
        bodies = [message.body for message in await client.peek("orders")]
        assert bodies == [b"from the owner", b"from outside"]
        assert key(folder) not in embedded._registry._entries

    run(scenario, folder)
    owner.close()
    assert not (folder / SOCKET).exists()


@pytest.mark.parametrize("how", ["killed", "closed"])
def test_when_the_owner_goes_the_client_takes_over(folder: Path, owner: Owner, how: str) -> None:
    async def scenario(client: Client) -> None:
        async with client.subscribe("orders", "billing", lease_s=600) as deliveries:
            first = await deliveries.receive(timeout_s=PATIENCE_S)
            assert first is not None
            await asyncio.to_thread(owner.kill if how == "killed" else owner.close)
            receipt = await client.publish("orders", b"goes on")
            assert (receipt.offset, receipt.duplicate) == (1, False)
            assert key(folder) in embedded._registry._entries
            found = set()
            while b"goes on" not in found:
                message = await deliveries.receive(timeout_s=PATIENCE_S)
                assert message is not None
                found.add(message.body)
                message.ack()
            await deliveries.flush()
        # A third one attaches to the new owner in its turn.
        assert await asyncio.to_thread(outsider, folder) == "2\n"

    run(scenario, folder)
    assert key(folder) not in embedded._registry._entries
    assert not (folder / SOCKET).exists()

    async def look(client: Client) -> None:
        assert (await client.stats())["recovery"]["is_clean"] is True

    run(look, folder)


def outsider(folder: Path) -> str:
    code = (
        "import sys, penstock\n"
        "with penstock.connect_blocking('file:' + sys.argv[1]) as client:\n"
        "    print(client.describe_topic('orders')['published'])\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, folder],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_S,
    ).stdout


def test_of_several_one_takes_over_and_the_others_attach_to_it(folder: Path, owner: Owner) -> None:
    async def scenario(client: Client) -> None:
        async with connect(f"file:{folder}") as other:
            await asyncio.to_thread(owner.kill)
            receipts = await asyncio.gather(
                *(each.publish("orders", b"x") for each in (client, other) for _ in range(50))
            )
            assert sorted(receipt.offset or 0 for receipt in receipts) == list(range(1, 101))

    run(scenario, folder)


def test_publishes_under_way_when_the_owner_dies_are_stored_once(
    folder: Path, owner: Owner
) -> None:
    async def scenario(client: Client) -> None:
        sent = 0

        async def publish_all() -> None:
            nonlocal sent
            for low in range(0, 200, 20):
                wave = (b"%d" % number for number in range(low, low + 20))
                await asyncio.gather(*(client.publish("orders", body) for body in wave))
                sent = low + 20

        publishing = asyncio.create_task(publish_all())
        while sent < 40:  # noqa: ASYNC110 - with the next wave under way
            await asyncio.sleep(0)
        assert sent < 200
        owner.process.send_signal(signal.SIGKILL)
        await publishing
        bodies = [message.body for message in await client.peek("orders", 1_000)]
        assert len(bodies) == 201
        assert set(bodies[1:]) == {b"%d" % number for number in range(200)}

    run(scenario, folder)


def test_an_owner_that_does_not_answer_is_named(
    folder: Path, owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attached, "ATTACH_S_MAX", 0.3)
    monkeypatch.setattr(opening, "ATTEMPT_S_MAX", 0.2)
    owner.process.send_signal(signal.SIGSTOP)

    async def scenario() -> None:
        with pytest.raises(StoreInUse, match=f"process {owner.process.pid}.*did not answer"):
            await connect(f"file:{folder}")

    asyncio.run(scenario())


def test_a_forked_child_does_not_keep_a_dead_owner_alive(folder: Path) -> None:
    code = (
        "import os, sys, time, penstock\n"
        "client = penstock.connect_blocking('file:' + sys.argv[1]).open()\n"
        "client.publish('orders', b'x')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    os.close(1)\n"
        "    time.sleep(600)\n"
        "print(child, flush=True)\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code, folder], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = int(parent.stdout.readline())
    try:
        parent.kill()
        parent.communicate()

        async def scenario(client: Client) -> None:
            assert (await client.publish("orders", b"y")).offset == 1
            assert key(folder) in embedded._registry._entries

        run(scenario, folder)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_store_that_cannot_be_taken_over_is_tried_again(folder: Path) -> None:
    answers: list[Any] = [StoreInUse("no"), StorageError("the disk is gone")]

    def take_over() -> Any:
        raise answers.pop(0)

    async def scenario() -> None:
        address = OwnerAddress(folder, take_over)
        loop = asyncio.get_running_loop()
        with pytest.raises(ConnectionRefusedError):
            await address._own(loop)
        with pytest.raises(OSError, match="the disk is gone"):
            await address._own(loop)
        await address.release()
        with pytest.raises(ConnectionRefusedError):
            await address._own(loop)
        assert str(folder) in address.text

    asyncio.run(scenario())


def test_what_was_taken_over_too_late_is_given_back(folder: Path) -> None:
    class Part:
        is_released = False

        def release(self) -> None:
            self.is_released = True

    part = Part()

    async def scenario() -> None:
        address = OwnerAddress(folder, lambda: part)
        task = asyncio.create_task(address._own(asyncio.get_running_loop()))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await address.release()

    asyncio.run(scenario())
    assert part.is_released
