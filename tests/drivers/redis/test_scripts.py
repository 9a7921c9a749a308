"""Scripts that must be exact: publishing again, and units."""

import asyncio
from collections.abc import Callable

import pytest

from penstock.cli.bench.servers import Server
from penstock.drivers.foreign.address import parse
from penstock.drivers.foreign.carrier import Sender
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.redis.carrier import RedisCarrier, connect
from penstock.vocabulary.errors import PublisherFenced
from penstock.vocabulary.units import Part, UnitWish
from tests.contracts.suites.world import unique


def letters(*numbers: int) -> list[Letter]:
    return [Letter(body=b"%d" % n, id=f"id-{n}", sequence=n) for n in numbers]


async def opened(server: Server) -> RedisCarrier:
    return await connect(parse(f"redis://{server.address}", 6379, {}))


def test_a_repeated_send_stores_nothing_and_knows_its_last_place(
    redis_server: Callable[..., Server],
) -> None:
    async def scenario() -> None:
        carrier, topic = await opened(redis_server()), unique("again")
        sender = Sender(b"p" * 16, 7)
        first = await carrier.send(topic, letters(0, 1, 2), sender)
        again = await carrier.send(topic, letters(0, 1, 2, 3), sender)
        assert [place.position for place in again[:2]] == ["", ""]
        assert again[2].position == first[2].position
        assert not any(place.is_duplicate for place in again)
        assert [each.body for each in await carrier.look(topic, 10, None)] == [
            b"0", b"1", b"2", b"3",
        ]  # fmt: skip
        await carrier.send(topic, letters(0), Sender(b"p" * 16, 8))
        with pytest.raises(PublisherFenced):
            await carrier.send(topic, letters(1), sender)
        await carrier.close()

    asyncio.run(scenario())


def test_a_repeated_unit_is_answered_as_the_first(redis_server: Callable[..., Server]) -> None:
    async def scenario() -> None:
        carrier, topic = await opened(redis_server()), unique("unit")
        wish = UnitWish(b"u" * 16, 1, 0, [Part(topic, 0, b"", 2, 1, 0)])
        first = await carrier.commit(wish, [letters(0, 1)], [])
        again = await carrier.commit(wish, [letters(0, 1)], [])
        assert first == again
        assert len(await carrier.look(topic, 10, None)) == 2
        await carrier.commit(wish._replace(sequence=1), [letters(2)], [])
        with pytest.raises(PublisherFenced):
            await carrier.commit(wish, [letters(0, 1)], [])
        assert await carrier.commit(wish._replace(sequence=2, parts=[]), [], []) == []
        await carrier.close()

    asyncio.run(scenario())
