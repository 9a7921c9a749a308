"""What a program needs is checked when it starts, and everything that lacks is named at once."""

import asyncio
from typing import Any

import msgspec
import pytest

import penstock
from penstock.client.client import Client
from penstock.client.needs import NEEDS, check_needs, missing
from penstock.drivers.capabilities import (
    KAFKA,
    KUBEMQ,
    MATRIX,
    MQTT,
    NATS,
    PUBSUB,
    REDIS,
    ROWS,
    Support,
)
from penstock.drivers.embedded import FILE, MEMORY, open_embedded
from penstock.drivers.port import Capabilities, Driver
from penstock.vocabulary.errors import Closed, InvalidArgument, Unsupported
from penstock.vocabulary.message import Durability, Kind


def test_our_own_broker_has_everything_but_replicas() -> None:
    assert missing(NEEDS, FILE) == ["replicated"]
    assert missing(NEEDS, MEMORY) == ["written", "synced", "replicated"]


@pytest.mark.parametrize(
    ("can", "lacks"),
    [
        (
            NATS,
            {"held", "stale_ack", "priority", "transactions", "key_shared", "partitions", "qos0",
             "qos2", "synced", "replicated"},
        ),
        (
            REDIS,
            {"priority", "delay", "deliver_at", "patterns", "key_shared", "partitions", "written",
             "synced", "replicated"},
        ),
    ],
)  # fmt: skip
def test_what_others_lack(can: Capabilities, lacks: set[str]) -> None:
    assert set(missing(NEEDS, can)) == lacks


@pytest.mark.parametrize("can", [KAFKA, KUBEMQ, MQTT, NATS, PUBSUB, REDIS])
def test_every_row_of_the_matrix_is_a_need(can: Capabilities) -> None:
    cells = MATRIX[can.scheme]
    refused = [row for row in ROWS if cells[row].support is Support.REFUSED]
    assert missing(check_needs(ROWS), can) == refused


@pytest.mark.parametrize("needs", ["ids", 3, ["idz"], [None]])
def test_a_need_that_does_not_exist_is_refused(needs: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"needs must be a list|there is no need"):
        penstock.connect("memory:", needs=needs)


def test_the_nearest_word_is_named() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'key_shared'"):
        check_needs(["keyshared"])
    assert check_needs(iter(["ids"])) == ("ids",)


class Lesser:
    """A client of a broker that can less than ours."""

    def __init__(self, **less: Any) -> None:
        self._less = less

    async def open(self) -> Driver:
        driver: Any = await open_embedded("memory:lesser", asyncio.get_running_loop())
        driver.capabilities = msgspec.structs.replace(driver.capabilities, **self._less)
        return driver  # type: ignore[no-any-return]

    def client(self, **options: Any) -> Client:
        return Client("memory:lesser", self.open, **options)


def test_everything_that_lacks_is_named_before_anything_runs() -> None:
    async def scenario() -> None:
        lesser = Lesser(has_dedup=False, has_priority=False, kinds=(Kind.SHARED,))
        client = lesser.client(needs=("priority", "shared", "ids", "key_shared"))
        with pytest.raises(Unsupported, match="needs priority, ids, key_shared, which memory:"):
            await client.open()
        with pytest.raises(Closed):
            await client.publish("t", b"x")
        async with lesser.client(needs=("shared", "memory")) as fine:
            await fine.publish("t", b"x")

    asyncio.run(scenario())


def test_an_id_is_refused_in_every_way_to_publish() -> None:
    async def scenario() -> None:
        async with Lesser(has_dedup=False).client() as client:
            with pytest.raises(Unsupported, match="id is not available on memory: URLs"):
                await client.publish("t", b"x", id="a")
            with pytest.raises(Unsupported, match="message 1: id is not available"):
                await client.publish_many("t", [b"x", penstock.Message(id="a")])
            async with client.transaction() as unit:
                with pytest.raises(Unsupported, match="id is not available"):
                    unit.publish("t", b"x", id="a")
            assert await client.peek("t") == []

    asyncio.run(scenario())


def test_every_handler_is_checked_before_the_first_one_begins() -> None:
    begun: list[Any] = []

    async def scenario() -> None:
        client = Lesser(kinds=(Kind.SHARED,), qos=(1,), durability=Durability.MEMORY).client()

        @client.on_message("t", "one")
        async def one(body: bytes) -> None:
            begun.append(body)

        @client.on_message("t", "two", kind="key_shared")
        async def two(body: bytes) -> None:
            begun.append(body)

        async with client:
            await client.publish("t", b"x")
            with pytest.raises(Unsupported, match="kind 'key_shared' is not available"):
                await client.run()
            assert await client.subscriptions("t") == []

    asyncio.run(scenario())
    assert begun == []
