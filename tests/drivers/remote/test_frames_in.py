"""Frames of a server: each reaches whoever waits for it, and none can do harm."""

import asyncio
from typing import Any

import pytest

from penstock.drivers.remote.driver import RemoteDriver
from penstock.drivers.remote.frames_in import HANDLERS, handle
from penstock.vocabulary.errors import ProtocolError
from penstock.wire import frames
from penstock.wire.frames import Type
from tests.drivers.remote.rig import Served


def test_everything_a_server_may_send_has_a_meaning() -> None:
    assert set(HANDLERS) == set(frames.FROM_SERVER) - {Type.WELCOME}


def test_a_second_welcome_is_refused() -> None:
    async def scenario() -> None:
        driver = RemoteDriver(asyncio.get_running_loop(), "penstock", lambda _: None)
        with pytest.raises(ProtocolError):
            handle(driver, Type.WELCOME, 0, 0, memoryview(b""))

    asyncio.run(scenario())


def test_frames_for_nobody_are_harmless_and_invented_ones_refused() -> None:
    async def scenario() -> None:
        driver = RemoteDriver(asyncio.get_running_loop(), "penstock", lambda _: None)
        for kind in HANDLERS:
            for payload in (b"", b"\xc1", b"\x91" * 500, bytes(40)):
                try:
                    handle(driver, kind, 0, 77, memoryview(payload))
                except ProtocolError:
                    continue

    asyncio.run(scenario())


def test_partitions_are_learned_from_maps_and_refusals() -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client, served.client() as other:
            await other.create_topic("orders", partitions=4)
            driver: Any = client._driver
            assert driver.partitions("orders") == 1
            receipts = await client.publish_many("orders", [b"%d" % n for n in range(40)])
            assert len(receipts) == 40
            assert driver.partitions("orders") == 4
            await other.alter_topic("orders", partitions=6)
            for n in range(12):
                await client.publish("orders", b"%d" % n, key=f"k{n}")
            assert driver.partitions("orders") == 6
            await client.alter_topic("orders", partitions=8)
            assert driver.partitions("orders") == 8

    with Served() as served:
        asyncio.run(scenario(served))
