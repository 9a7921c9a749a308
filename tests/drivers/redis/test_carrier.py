"""What is special about Redis, on the real server; the contract suite does the rest."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

import penstock
from penstock.cli.bench import servers
from penstock.cli.bench.servers import Server
from penstock.drivers.foreign.address import parse
from penstock.drivers.foreign.carrier import Sender
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.redis import carrier as carriers
from penstock.drivers.redis import keeping
from penstock.drivers.redis.carrier import RedisCarrier, connect
from penstock.vocabulary.errors import (
    AccessRefused,
    DiskFull,
    InvalidArgument,
    InvalidName,
    PublisherFenced,
    StorageError,
    Unavailable,
    UnknownSubscription,
    Unsupported,
)
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import TopicPolicy
from tests.contracts.suites.world import first, nothing, unique, until
from tests.servers.fixtures import starting


def url_of(server: Server, fields: str = "") -> str:
    return f"redis://{server.address}{fields}"


@pytest.mark.parametrize(
    ("fsync", "level"), [("always", Durability.SYNCED), ("everysec", Durability.WRITTEN)]
)
def test_the_level_is_read_from_the_server(
    redis_server: Callable[..., Server], fsync: str, level: Durability
) -> None:
    async def scenario() -> None:
        async with penstock.connect(url_of(redis_server(fsync))) as client:
            receipt = await client.publish(unique("level"), b"x")
            assert receipt.durability is level
            if level is not Durability.SYNCED:
                with pytest.raises(Unsupported, match="'synced' is more than redis"):
                    await client.publish(unique("level"), b"x", durability="synced")

    asyncio.run(scenario())


def test_without_its_file_or_for_a_user_with_few_rights_the_level_is_told_too(
    tmp_path: Path,
) -> None:
    program = servers.program_of("redis", "redis-server")

    def make(port: int) -> Server:
        words = [str(program), "--bind", "127.0.0.1", "--port", str(port), "--save", ""]
        return Server([*words, "--requirepass", "secret", "--dir", str(tmp_path)], port, tmp_path)

    async def scenario(server: Server) -> None:
        with pytest.raises(AccessRefused, match="refused user and password") as raised:
            await penstock.connect(f"redis://:wrong1@{server.address}").open()
        assert "wrong1" not in str(raised.value)
        with pytest.raises(AccessRefused):
            await penstock.connect(f"redis://{server.address}").open()
        async with penstock.connect(f"redis://:secret@{server.address}") as client:
            assert client.capabilities.durability is Durability.MEMORY
            with pytest.raises(Unsupported, match="'written' is more"):
                await client.publish("orders", b"x", durability="written")
        with redis.Redis(port=server.port, password="secret") as admin:
            rights = ["+@all", "-config", "~*"]
            admin.execute_command("ACL", "SETUSER", "few", "on", ">pw", *rights)
        async with penstock.connect(f"redis://few:pw@{server.address}") as client:
            assert client.capabilities.durability is Durability.MEMORY

    with starting(lambda: make) as server:
        asyncio.run(scenario(server))


def test_wrong_urls_are_refused_by_name() -> None:
    for url, said in (
        ("redis://a,b", "several hosts"),
        ("redis://h/x", "the number of a database"),
    ):
        with pytest.raises(InvalidArgument, match=said):
            asyncio.run(connect(parse(url, 6379, {})))


def test_tls_options_reach_the_connection() -> None:
    address = parse("rediss://h?tls_ca=ca.pem&tls_cert=c.pem&tls_key=k.pem", 6379, {})
    options = RedisCarrier(address)._options
    assert (options["ssl"], options["ssl_ca_certs"]) == (True, "ca.pem")


def test_a_key_that_is_no_stream_is_left_alone(redis_server: Callable[..., Server]) -> None:
    server = redis_server()
    topic = unique("text")
    with redis.Redis(port=server.port) as admin:
        admin.set(topic, "precious")

    async def scenario() -> None:
        async with penstock.connect(url_of(server)) as client:
            with pytest.raises(InvalidName, match="holds a string, not a stream"):
                await client.publish(topic, b"x")
            with pytest.raises(InvalidName, match="keep for themselves"):
                await client.publish("$penstock:topics", b"x")

    asyncio.run(scenario())
    with redis.Redis(port=server.port) as admin:
        assert admin.get(topic) == b"precious"


def test_entries_of_other_programs_are_delivered(redis_server: Callable[..., Server]) -> None:
    server = redis_server()
    topic = unique("foreign")
    with redis.Redis(port=server.port) as admin:
        admin.xadd(topic, {"order": "17"})
        admin.xadd(topic, {"body": "plain", "trace": "1"})
        admin.xadd(topic, {"body": "odd", "penstock-id": "1", "penstock-expires": "soon"})

    async def scenario() -> None:
        async with penstock.connect(url_of(server)) as client:
            assert topic in [row["topic"] for row in await client.topics()]
            async with client.subscribe(topic, "s") as deliveries:
                one, two, three = [await first(deliveries) for _ in range(3)]
                assert one.json() == {"order": "17"}
                assert (two.body, two.headers) == (b"plain", {"trace": "1"})
                assert three.body == b"odd"
                assert "penstock-undecoded" in three.headers

    asyncio.run(scenario())


def test_what_everybody_finished_is_trimmed_and_one_unacked_message_keeps_itself(
    redis_server: Callable[..., Server],
) -> None:
    topic = unique("trim")

    async def scenario() -> None:
        async with penstock.connect(url_of(redis_server())) as client:
            for name in ("fast", "slow"):
                await client.create_subscription(topic, name)
            await client.publish_many(topic, [str(number) for number in range(100)])
            async with client.subscribe(topic, "fast") as deliveries:
                for _ in range(100):
                    (await first(deliveries)).ack()
            assert (await client.describe_topic(topic))["messages"] == 100
            async with client.subscribe(topic, "slow") as deliveries:
                for number in range(100):
                    message = await first(deliveries)
                    if number != 40:
                        message.ack()

            async def is_trimmed() -> bool:
                return bool((await client.describe_topic(topic))["messages"] == 60)

            await until(is_trimmed, "trimming")
            async with client.subscribe(topic, "slow") as deliveries:
                last = await first(deliveries)
                assert last.body == b"40"
                last.ack()
                await nothing(deliveries)
            assert (await client.describe_topic(topic))["messages"] == 0

    asyncio.run(scenario())


def test_max_age_removes_unacked_messages(redis_server: Callable[..., Server]) -> None:
    topic = unique("age")

    async def scenario() -> None:
        async with penstock.connect(url_of(redis_server())) as client:
            await client.create_topic(topic, max_age_s=3)
            await client.create_subscription(topic, "s")
            await client.publish(topic, b"old")
            await asyncio.sleep(3.5)
            await client.publish(topic, b"new")
            async with client.subscribe(topic, "s") as deliveries:
                assert (await first(deliveries)).body == b"new"

    asyncio.run(scenario())


def test_full_dead_letters_are_refused(redis_server: Callable[..., Server]) -> None:
    topic = unique("full")

    async def scenario() -> None:
        async with penstock.connect(url_of(redis_server())) as client:
            await client.publish_many(topic, [bytes(5_000)] * 2)
            options: dict[str, Any] = {"dead_bytes_max": 4_000, "retry": {"max_s": 60}}
            async with client.subscribe(topic, "s", **options) as deliveries:
                (await first(deliveries)).reject("one")
                await deliveries.flush()
                (await first(deliveries)).reject("two")
                await deliveries.flush()
            assert len(await client.dead_letters(topic, "s")) == 1

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("OOM command not allowed", DiskFull),
        ("READONLY You can't write against a read only replica", Unavailable),
        ("MISCONF Errors writing to the AOF file", DiskFull),
        ("something else", StorageError),
    ],
)
def test_errors_of_the_server_become_ours(said: str, kind: type[Exception]) -> None:
    carrier = RedisCarrier(parse("redis://me:secret@h", 6379, {}))
    found = carrier._translated(redis.exceptions.ResponseError(said))
    assert isinstance(found, kind)
    assert "secret" not in str(found)


def test_one_letter_and_many_are_told_apart_by_the_same_rules(
    redis_server: Callable[..., Server],
) -> None:
    """Letters one by one go through a quicker script; each sees what the other stored."""

    async def scenario() -> None:
        carrier = await connect(parse(url_of(redis_server()), 6379, {}))
        topic, sender = unique("one"), Sender(b"p" * 16, 5)
        await carrier.put_topic(topic, 1, TopicPolicy())
        letters = [Letter(body=b"%d" % at, id=f"i{at}", sequence=at) for at in range(6)]

        async def sent(low: int, high: int, who: Sender = sender) -> list[bool]:
            """Which of these letters were stored now."""
            before = await carrier.redis.xlen(topic)
            placed = await carrier.send(topic, letters[low:high], who)
            stored = await carrier.redis.xlen(topic) - before
            return [stored == high - low, all(each.position for each in placed)]

        await carrier.redis.script_flush()
        assert await sent(0, 1) == [True, True]
        assert await sent(0, 1) == [False, True]
        assert await sent(1, 3) == [True, True]
        assert await sent(1, 2) == [False, False]  # known, but not where
        assert await sent(2, 3) == [False, True]
        assert await sent(3, 4) == [True, True]
        assert await sent(3, 5) == [False, True]
        assert await carrier.redis.xlen(topic) == 5
        with pytest.raises(PublisherFenced):
            await sent(5, 6, Sender(sender.publisher, 4))
        given = Letter(body=b"x", id="given", dedup="given", is_given=True)
        (first_place,) = await carrier.send(topic, [given], None)
        ((again), *_) = await carrier.send(topic, [given, letters[0]], None)
        (third,) = await carrier.send(topic, [given], None)
        assert [each.is_duplicate for each in (first_place, again, third)] == [False, True, True]
        assert first_place.position == again.position == third.position
        await carrier.close()

    asyncio.run(scenario())


def test_scripts_the_server_forgot_and_their_errors_are_the_same_either_way(
    redis_server: Callable[..., Server],
) -> None:
    """A script goes over the quick connection as soon as there is one, else over the pool."""

    async def scenario() -> None:
        carrier, topic = await connect(parse(url_of(redis_server()), 6379, {})), unique("either")
        wrong: dict[str, Any] = {"stream": topic, "group": "s", "key": "k", "policy": "{}"}
        for _ in range(2):
            with pytest.raises(UnknownSubscription):
                await carrier.run(keeping.ALTER, **wrong)
            await until(lambda: asyncio.sleep(0, carrier._quick._connection), "the connection")  # type: ignore[union-attr]
        await carrier.redis.script_flush()
        assert await carrier.run(keeping.TRIM, stream=topic, retain=1, page=1) == 0
        await carrier.close()

    asyncio.run(scenario())


def _entry(id: str) -> tuple[int, ...]:
    """Milliseconds and number of an entry, which are not in the order of their texts."""
    return tuple(map(int, id.split("-")))


def test_what_waits_is_counted_where_the_server_does_not(
    redis_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def waiting(client: penstock.Client, topic: str) -> tuple[Any, Any]:
        [row] = await client.subscriptions(topic)
        return row["waiting"], row["waiting_min"]

    async def scenario() -> None:
        topic = unique("lag")
        async with penstock.connect(url_of(redis_server())) as client:
            await client.create_topic(topic, replay_s=3600)
            sent = await client.publish_many(topic, [str(number) for number in range(600)])
            await client.create_subscription(topic, "s", start=sent[150].position)
            assert await waiting(client, topic) == (450, None)
            monkeypatch.setattr(carriers, "COUNT_MAX", 200)
            assert await waiting(client, topic) == (450, None), "counted from the other end"
            await client.seek(topic, "s", sent[300].position)
            assert await waiting(client, topic) == (None, 200)
            await client.seek(topic, "s", sent[595].position)
            assert await waiting(client, topic) == (5, None)
            [row] = await client.subscriptions(topic)
            async with client.subscribe(topic, "s") as deliveries:
                assert (await first(deliveries)).body == b"595"
                [later] = await client.subscriptions(topic)
                assert _entry(later["upto"]) > _entry(row["upto"])

    asyncio.run(scenario())
