"""The client itself: opening, wrong input, what it may be asked for, which loop it belongs to."""

import asyncio
import subprocess
import sys
import threading
from typing import Any

import pytest

import penstock
from penstock.client.client import Client, connect
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import (
    Closed,
    InvalidArgument,
    InvalidName,
    SubscriptionConflict,
    TooLarge,
    Unsupported,
    UsageError,
)
from penstock.vocabulary.limits import (
    BODY_BYTES_MAX,
    HEADER_BYTES_MAX,
    HEADER_COUNT_MAX,
    ID_BYTES_MAX,
    KEY_BYTES_MAX,
)
from penstock.vocabulary.message import Message

# -- opening -------------------------------------------------------------------------------------


def test_a_client_is_made_outside_of_any_loop_and_opened_by_await_or_with() -> None:
    client = connect("memory:")
    other = connect("memory:")

    async def scenario() -> None:
        with pytest.raises(Closed, match="not open yet"):
            await client.publish("t", b"x")
        with pytest.raises(Closed, match="not open yet"):
            _ = client.capabilities
        assert await client is client
        assert client.capabilities.scheme == "memory"
        await client.publish("t", b"x")
        await client.close()
        async with other as entered:
            assert entered is other
            await other.publish("t", b"x")

    asyncio.run(scenario())


def test_opening_at_the_same_time_opens_once() -> None:
    async def scenario() -> None:
        client = connect("memory:")
        await asyncio.gather(*(client.open() for _ in range(5)))
        await client.publish("t", b"x")
        await client.close()

    asyncio.run(scenario())


def test_an_unknown_option_is_refused_with_a_hint() -> None:
    with pytest.raises(InvalidArgument, match="did you mean 'publisher'"):
        connect("memory:", publsher="feed")
    with pytest.raises(InvalidArgument, match="known: publisher"):
        connect("memory:", colour="red")


def test_a_client_belongs_to_the_loop_it_was_opened_on() -> None:
    client = connect("memory:loops")

    async def open_it() -> None:
        await client

    async def use_it() -> None:
        with pytest.raises(UsageError, match="another event loop"):
            await client.publish("t", b"x")
        with pytest.raises(UsageError, match="another event loop"):
            await client.publish_many("t", [b"x"])
        with pytest.raises(UsageError, match="another event loop"):
            client.subscribe("t")

    loop = asyncio.new_event_loop()
    loop.run_until_complete(open_it())
    asyncio.run(use_it())
    thread = threading.Thread(target=lambda: asyncio.run(use_it()))
    thread.start()
    thread.join()
    loop.run_until_complete(client.close())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def test_a_client_whose_loop_is_gone_can_still_be_closed() -> None:
    client = connect("memory:gone")

    async def open_it() -> None:
        await client
        await client.subscribe("t", "s")
        await client.publish("t", b"x")

    async def close_it() -> None:
        await client.close()
        async with connect("memory:gone") as other:
            assert await other.topics() == []

    loop = asyncio.new_event_loop()
    loop.run_until_complete(open_it())
    loop.close()
    asyncio.run(close_it())


# -- wrong input ---------------------------------------------------------------------------------

LONG = "x" * 2_000
WRONG_MESSAGES: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"body": bytes(BODY_BYTES_MAX + 1)}, TooLarge, "body of 1048577 bytes"),
    ({"key": "k" * (KEY_BYTES_MAX + 1)}, TooLarge, "key of 1025 bytes"),
    ({"key": 5}, InvalidArgument, "key must be"),
    ({"id": "i" * (ID_BYTES_MAX + 1)}, TooLarge, "id of 257 bytes"),
    ({"id": 5}, InvalidArgument, "id must be text"),
    ({"id": ""}, InvalidArgument, "id must not be empty"),
    ({"id": "\ud800"}, InvalidArgument, "id is not valid Unicode"),
    ({"headers": {"a": "x" * HEADER_BYTES_MAX}}, TooLarge, "headers of 16385 bytes"),
    ({"headers": {str(n): "" for n in range(HEADER_COUNT_MAX + 1)}}, TooLarge, "65 headers"),
    ({"headers": {"a": 5}}, InvalidArgument, "header 'a'"),
    ({"headers": ["a"]}, InvalidArgument, "headers must be a dict"),
    ({"body": {"a": 1}}, InvalidArgument, "not dict; for a JSON value use json="),
    ({"body": 5}, InvalidArgument, "not int"),
    ({"body": b"x", "json": 1}, InvalidArgument, "either body or json"),
    ({"json": object()}, InvalidArgument, "JSON cannot hold"),
    ({"priority": 40_000}, InvalidArgument, "priority"),
    ({"priority": "high"}, InvalidArgument, "priority"),
    ({"deliver_at": "noon"}, InvalidArgument, "deliver_at must be Unix seconds"),
    ({"delay_s": -1}, InvalidArgument, "delay_s must be seconds from 0"),
    ({"delay_s": 1, "deliver_at": 5.0}, InvalidArgument, "either deliver_at or delay_s"),
    ({"ttl_s": float("nan")}, InvalidArgument, "ttl_s must be seconds from 0"),
    ({"durability": "forever"}, InvalidArgument, "unknown durability 'forever'"),
    ({"durability": "synced"}, Unsupported, "durability 'synced' is more than memory: URLs give"),
    ({"durability": "replicated"}, Unsupported, "replicated"),
    ({"topic": ""}, InvalidName, "non-empty"),
    ({"topic": "a b"}, InvalidName, "space"),
    ({"topic": LONG}, InvalidName, "over the limit"),
    ({"topic": "a/#"}, InvalidName, "kept for patterns"),
    ({"topic": None}, InvalidName, "not None"),
    ({"topic": ["orders"]}, InvalidName, "must be non-empty text"),
]


@pytest.mark.parametrize(("options", "error", "text"), WRONG_MESSAGES)
@pytest.mark.parametrize("partitions", [1, 3])
def test_a_wrong_message_is_refused_by_name(
    options: dict[str, Any], error: type[Exception], text: str, partitions: int
) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            await client.create_topic("orders", partitions)
            with pytest.raises(error, match=text):
                await client.publish(**{"topic": "orders", **options})
            receipt = await client.publish("orders", b"good", key="k")
            assert receipt.offset == 0

    asyncio.run(scenario())


WRONG_LISTS: list[tuple[Any, type[Exception], str]] = [
    ([b"x", bytes(BODY_BYTES_MAX + 1)], TooLarge, "message 1: body"),
    ([Message(id="i" * 300)], TooLarge, "message 0: id"),
    ([Message(body=b"x", id=n) for n in ("i", "")], InvalidArgument, "message 1: id must not be"),
    ([b"x", 5], InvalidArgument, "message 1: body must be bytes"),
    ([b"x", Message(priority=40_000)], InvalidArgument, "message 1: priority"),
    ("text", InvalidArgument, "for one message use publish"),
    (5, InvalidArgument, "list of messages"),
]


@pytest.mark.parametrize(("messages", "error", "text"), WRONG_LISTS)
def test_a_list_with_a_wrong_message_sends_nothing(
    messages: Any, error: type[Exception], text: str
) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            with pytest.raises(error, match=text):
                await client.publish_many("orders", messages)
            assert (await client.publish("orders", b"x")).offset == 0

    asyncio.run(scenario())


def test_no_messages_are_no_receipts() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            assert len(await broker.client().publish_many("orders", [])) == 0

    asyncio.run(scenario())


WRONG_SUBSCRIPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"kind": "queue"}, InvalidArgument, "unknown subscription kind 'queue'; known: 'shared'"),
    ({"subscription": "a@b"}, InvalidName, "contains '@'"),
    ({"topic": "a/+b"}, InvalidName, "a level of its own"),
    ({"kind": "reader"}, SubscriptionConflict, r"open it with client\.reader"),
    ({"qos": 3}, Unsupported, "qos 3 is not available on memory: URLs; use 0 or 1 or 2"),
    ({"qos": True}, InvalidArgument, "qos"),
    ({"credit": 0}, InvalidArgument, "credit must be"),
    ({"credit": 1.5}, InvalidArgument, "credit must be"),
    ({"credit_bytes": 0}, InvalidArgument, "credit_bytes must be"),
    ({"consumer": "a b"}, InvalidName, "consumer"),
    ({"subscription": "a b"}, InvalidName, "subscription"),
    ({"subscription": LONG}, InvalidName, "over the limit"),
    ({"topic": "a b"}, InvalidName, "topic"),
    ({"lease_s": "long"}, InvalidArgument, "lease_s"),
    ({"colour": "red"}, InvalidArgument, "no setting 'colour'"),
    ({"start": float("nan")}, InvalidArgument, "start nan is not 'earliest'"),
    ({"start": float("inf")}, InvalidArgument, "start inf is not 'earliest'"),
    ({"start": True}, InvalidArgument, "start True is not 'earliest'"),
    ({"start": "soon"}, InvalidArgument, "soon"),
    ({"start": "²:0"}, InvalidArgument, "²:0"),
]


@pytest.mark.parametrize(("options", "error", "text"), WRONG_SUBSCRIPTIONS)
def test_a_wrong_subscription_is_refused_by_name(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            with pytest.raises(error, match=text):
                client.subscribe(**{"topic": "orders", "subscription": "billing", **options})

    asyncio.run(scenario())


WRONG_OPENINGS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"lease_s": 0.001}, InvalidArgument, "lease_s"),
    ({"dead_bytes_max": -1}, InvalidArgument, "dead_bytes_max must be 0 or more"),
    ({"start": "0:99"}, UsageError, "not held"),
    ({"start": "7:0"}, InvalidArgument, "no partition 7"),
]


@pytest.mark.parametrize(("options", "error", "text"), WRONG_OPENINGS)
def test_what_only_the_broker_knows_is_refused_on_opening(
    options: dict[str, Any], error: type[Exception], text: str
) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            with pytest.raises(error, match=text):
                await client.subscribe("orders", "billing", **options)
            if error is InvalidArgument and "7:0" not in options.values():
                assert await client.topics() == [], "nothing was made for it"
            await client.close()

    asyncio.run(scenario())


# -- durability ----------------------------------------------------------------------------------


def test_an_explicit_durability_is_a_minimum(tmp_path: Any) -> None:
    async def scenario() -> None:
        async with connect(f"file:{tmp_path}/store") as client:
            for level in ("memory", "written", "synced", penstock.Durability.SYNCED):
                receipt = await client.publish("orders", b"x", durability=level)
                assert receipt.durability is penstock.Durability.SYNCED
            await client.create_topic("fast", durability="written")
            receipt = await client.publish("fast", b"x", durability="written")
            assert receipt.durability is penstock.Durability.WRITTEN
            for call in (client.publish("fast", b"x", durability="synced"),
                         client.publish_many("fast", [b"x"], durability="synced")):  # fmt: skip
                with pytest.raises(Unsupported, match="topic 'fast' gives: its policy"):
                    await call

    asyncio.run(scenario())


# -- the package ---------------------------------------------------------------------------------


def test_every_public_name_can_be_imported() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None, name
    assert set(penstock.__all__) <= set(dir(penstock))
    assert issubclass(penstock.errors.TooLarge, penstock.PenstockError)
    assert penstock.__version__.count(".") == 2
    assert penstock.connect is connect
    assert penstock.Client is Client
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = penstock.nothing


def test_importing_the_package_imports_no_room() -> None:
    program = (
        "import sys, penstock; "
        "print([name for name in sys.modules if name.startswith('penstock.')])"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout == "[]\n"
