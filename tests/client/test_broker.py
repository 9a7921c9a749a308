"""A broker of one's own and its clients."""

import asyncio
from pathlib import Path

import pytest

from penstock.client.broker import Broker
from penstock.client.client import connect
from penstock.vocabulary.errors import Closed, InvalidArgument, NotAStore, UnknownTopic


def test_a_broker_gives_clients_that_are_open(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Broker(tmp_path / "store") as broker:
            client = broker.client()
            await client.publish("orders", b"x")
            other = broker.client(publisher="feed")
            assert len(await other.peek("orders")) == 1
            async with client:
                await client.publish("orders", b"y")
            with pytest.raises(Closed):
                await client.publish("orders", b"z")
        with pytest.raises(Closed):
            await other.peek("orders")
        with pytest.raises(Closed, match="not open"):
            broker.client()

    asyncio.run(scenario())


def test_a_broker_shares_its_folder_with_connect(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Broker(str(tmp_path / "store")) as broker:
            async with connect(f"file:{tmp_path}/store") as client:
                await client.publish("orders", b"x")
            assert len(await broker.client().peek("orders")) == 1
            await broker.open()
        await broker.close()

    asyncio.run(scenario())


def test_wrong_folders_and_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument):
        Broker("")
    (tmp_path / "data").write_text("text")

    async def scenario() -> None:
        with pytest.raises(NotAStore):
            await Broker(tmp_path / "data").open()
        async with Broker(tmp_path / "store") as broker:
            with pytest.raises(InvalidArgument, match="colour"):
                broker.client(colour="red")

    asyncio.run(scenario())


def test_a_broker_may_leave_the_creation_of_topics_to_its_program(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with Broker(tmp_path / "store", auto_create_topics=False) as broker:
            client = broker.client()
            with pytest.raises(UnknownTopic, match="auto_create_topics is off"):
                await client.publish("orders", b"x")
            with pytest.raises(UnknownTopic):
                async with client.subscribe("orders", "billing"):
                    pass
            await client.create_topic("orders")
            await client.publish("orders", b"x")
            async with Broker(tmp_path / "store") as same:
                with pytest.raises(UnknownTopic):
                    await same.client().publish("other", b"x")

    asyncio.run(scenario())
