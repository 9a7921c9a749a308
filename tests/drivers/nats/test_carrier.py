"""What is special about NATS, on the real server; the contract suite does the rest."""

import asyncio
from pathlib import Path
from typing import Any

import nats
import pytest

import penstock
from penstock.cli.bench import servers
from penstock.cli.bench.servers import Server
from penstock.drivers.nats.carrier import _rfc3339
from penstock.vocabulary.errors import AccessRefused, InvalidArgument, Unavailable, Unsupported
from penstock.vocabulary.message import Durability
from tests.contracts.suites.world import first, nothing, unique, until
from tests.servers.fixtures import starting


def url_of(server: Server) -> str:
    return f"nats://{server.address}"


def test_a_confirmed_message_is_written_not_synced(nats_server: Server) -> None:
    async def scenario() -> None:
        async with penstock.connect(url_of(nats_server)) as client:
            receipt = await client.publish(unique("level"), b"x", durability="written")
            assert receipt.durability is Durability.WRITTEN
            with pytest.raises(Unsupported, match="'synced' is more than nats"):
                await client.publish(unique("level"), b"x", durability="synced")

    asyncio.run(scenario())


def test_streams_and_consumers_are_made_as_decided(nats_server: Server) -> None:
    topic = unique("made") + ".a:b"

    async def scenario() -> tuple[Any, Any]:
        async with penstock.connect(url_of(nats_server)) as client:
            await client.create_topic(topic, max_bytes=1_000_000)
            await client.create_subscription(topic, "billing", lease_s=7)
        raw = await nats.connect(url_of(nats_server))
        manager = raw.jsm()
        name = await manager.find_stream_name_by_subject(topic.replace(":", ".:"))
        stream = (await manager.stream_info(name)).config
        consumer = (await manager.consumer_info(name, "billing")).config
        await raw.close()
        return stream, consumer

    stream, consumer = asyncio.run(scenario())
    assert (stream.duplicate_window, stream.max_bytes, stream.retention) == (600, 1e6, "limits")
    assert (consumer.max_deliver, consumer.ack_wait, consumer.ack_policy) == (-1, 7, "explicit")


def test_records_of_other_programs_are_delivered(nats_server: Server) -> None:
    topic = unique("foreign")

    async def scenario() -> None:
        raw = await nats.connect(url_of(nats_server))
        stream = raw.jetstream()
        await stream.add_stream(name=f"{topic}-theirs", subjects=[topic])
        await stream.publish(topic, b"plain", headers={"trace": "1"})
        odd = {"penstock-id": "1", "penstock-expires": "soon"}
        await stream.publish(topic, b"odd", headers=odd)
        async with penstock.connect(url_of(nats_server)) as client:
            await client.publish(topic, b"ours")
            async with client.subscribe(topic, "s") as deliveries:
                one, two, three = [await first(deliveries) for _ in range(3)]
                assert (one.body, one.headers, one.id) == (b"plain", {"trace": "1"}, f"{topic}:1")
                assert two.body == b"odd"
                assert "penstock-undecoded" in two.headers
                assert three.body == b"ours"
        await raw.close()

    asyncio.run(scenario())


def test_settings_a_stream_cannot_keep_are_refused(nats_server: Server) -> None:
    async def scenario() -> None:
        async with penstock.connect(url_of(nats_server)) as client:
            for policy in ({"retain_s": 60}, {"keep_last": 1}, {"on_duplicate": "replace"}):
                with pytest.raises(Unsupported, match=f"{next(iter(policy))}.*nats"):
                    await client.create_topic(unique("policy"), **policy)

    asyncio.run(scenario())


def test_limits_of_a_stream_remove_unacked_messages(nats_server: Server) -> None:
    topic = unique("limits")

    async def is_empty(client: penstock.Client) -> bool:
        return not await client.peek(topic, 1)

    async def scenario() -> None:
        async with penstock.connect(url_of(nats_server)) as client:
            await client.create_topic(topic, max_age_s=0.5)
            await client.create_subscription(topic, "s")
            await client.publish(topic, b"old")
            await until(lambda: is_empty(client), "the end of what is too old")
            await client.alter_topic(topic, max_age_s=600)
            await client.publish(topic, b"new")
            async with client.subscribe(topic, "s") as deliveries:
                assert (await first(deliveries)).body == b"new"
                await nothing(deliveries)

    asyncio.run(scenario())


def test_expiry_is_the_servers_too(nats_server: Server) -> None:
    topic = unique("ttl")

    async def scenario() -> None:
        async with penstock.connect(url_of(nats_server)) as client:
            await client.publish(topic, b"gone", ttl_s=1)
            async with asyncio.timeout(20):
                while (await client.describe_topic(topic))["messages"]:  # noqa: ASYNC110
                    await asyncio.sleep(0.1)

    asyncio.run(scenario())


def test_expiry_is_the_clients_alone_where_the_stream_keeps_none(nats_server: Server) -> None:
    topic = unique("no-ttl")

    async def scenario() -> None:
        async with penstock.connect(url_of(nats_server)) as client:
            await client.open()
            carrier = client._opened().carrier  # type: ignore[attr-defined]
            await carrier.connection.api(
                f"STREAM.CREATE.{topic}-theirs", name=f"{topic}-theirs", subjects=[topic]
            )
            await client.publish(topic, b"gone", ttl_s=0.01)
            await client.publish(topic, b"there", ttl_s=600)
            await asyncio.sleep(0.02)
            async with client.subscribe(topic, "s") as deliveries:
                assert (await first(deliveries)).body == b"there"

    asyncio.run(scenario())


def test_full_dead_letters_are_refused(nats_server: Server) -> None:
    topic = unique("full")

    async def scenario() -> None:
        async with penstock.connect(url_of(nats_server)) as client:
            await client.publish_many(topic, [bytes(5_000)] * 2)
            options: dict[str, Any] = {"dead_bytes_max": 9_000, "retry": {"max_s": 60}}
            async with client.subscribe(topic, "s", **options) as deliveries:
                (await first(deliveries)).reject("one")
                await deliveries.flush()
                (await first(deliveries)).reject("two")
                await deliveries.flush()
            assert len(await client.dead_letters(topic, "s")) == 1

    asyncio.run(scenario())


def test_wrong_credentials_are_refused_and_never_printed(tmp_path: Path) -> None:
    program = servers.program_of("nats", "nats-server")

    def make(port: int) -> Server:
        words = [str(program), "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(tmp_path)]
        return Server([*words, "--user", "me", "--pass", "right1"], port, tmp_path)

    async def scenario(server: Server) -> None:
        for credentials in ("me:wrong1@", ""):
            with pytest.raises(AccessRefused) as raised:
                await penstock.connect(f"nats://{credentials}{server.address}").open()
            assert "wrong1" not in str(raised.value)
        async with penstock.connect(f"nats://me:right1@{server.address}") as client:
            await client.publish("orders", b"x")

    with starting(lambda: make) as server:
        asyncio.run(scenario(server))


NO_ACCOUNT = """
jetstream {{ store_dir: {folder} }}
accounts {{ A {{ users: [{{user: u, password: p}}] }} }}
no_auth_user: u
"""


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ("", Unsupported, "JetStream is off on this server; start it with 'nats-server -js"),
        (NO_ACCOUNT, Unsupported, "off for this account; add 'jetstream: enabled'"),
        (
            "cluster {{ name: c, listen: '127.0.0.1:-1' }}\n",
            Unavailable,
            "no other one of its cluster answers",
        ),
    ],
    ids=["server", "account", "cluster"],
)
def test_a_server_without_jetstream_is_named(
    tmp_path: Path, settings: str, kind: type[Exception], said: str
) -> None:
    program = servers.program_of("nats", "nats-server")
    written = tmp_path / "nats.conf"
    written.write_text(settings.format(folder=tmp_path / "data"), encoding="utf-8")

    def make(port: int) -> Server:
        words = [str(program), "-a", "127.0.0.1", "-p", str(port), "-c", str(written)]
        return Server(words, port, tmp_path)

    with starting(lambda: make) as server, pytest.raises(kind, match=said):
        # Final at once, although there were time to try; a cluster is given its time.
        asyncio.run(_open(f"nats://{server.address}?connect_s={5 if kind is Unavailable else 30}"))


def test_a_path_is_refused_before_anything_is_connected() -> None:
    with pytest.raises(InvalidArgument, match="has a path; a nats: URL names hosts only"):
        asyncio.run(_open("nats://127.0.0.1:1/orders"))


async def _open(url: str) -> None:
    await penstock.connect(url).open()


def test_times_in_the_words_of_the_server() -> None:
    assert _rfc3339(1_700_000_000.5) == "2023-11-14T22:13:20.500000Z"
