"""What is special about MQTT, on a real mosquitto; the contract suite does the rest."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt import publish as other_programs

import penstock
from penstock.cli.bench import servers
from penstock.cli.bench.servers import Server
from penstock.drivers.mqtt import slots
from penstock.drivers.mqtt.feed import MqttFeed
from penstock.drivers.mqtt.topics import client_id
from penstock.vocabulary.errors import (
    AccessRefused,
    InvalidArgument,
    InvalidName,
    SubscriptionInUse,
    Unavailable,
    Unsupported,
)
from penstock.vocabulary.policy import Retry
from tests.contracts.suites.world import (
    first,
    nobody,
    nothing,
    seconds_told,
    several,
    unique,
    until,
)
from tests.servers.fixtures import starting
from tests.standstill import noticed

ENDLESS = Retry(max_attempts=None)
CONSUMER = """
import asyncio, sys, penstock
async def main():
    async with penstock.connect(sys.argv[1]) as client:
        await client.subscribe(sys.argv[2], "s", retry=penstock.Retry(max_attempts=None))
        await asyncio.sleep(60)
asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mqtt://a,b", "several hosts"),
        ("mqtt://a/orders", "no path"),
        ("mqtt://a?version=4", "'version' is one of 5, 5.0, 3.1.1"),
        ("mqtt://a?qos=3", "'qos' is one of 0, 1, 2"),
        ("mqtt://a?dead=./dead", "'dead' names a store"),
        ("mqtt://a?hold=orders", "TOPIC@SUBSCRIPTION"),
    ],
)
def test_wrong_urls_are_refused_by_name(url: str, said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        asyncio.run(penstock.connect(url).open())


def test_dead_letters_need_a_place_or_no_end_of_tries(mosquitto: Server) -> None:
    topic = unique("dead")

    async def scenario() -> None:
        async with penstock.connect(f"tcp://{mosquitto.address}") as client:
            assert not client.capabilities.has_dead_letters
            for call in (
                client.create_subscription(topic, "s"),
                client.subscribe(topic, "s").open(),
                client.subscribe(topic, "m", kind="multicast", consumer="c").open(),
            ):
                with pytest.raises(Unsupported, match=r"dead=file:DIR.*max_attempts=None"):
                    await call
            async with client.subscribe(topic, "s", retry=ENDLESS) as deliveries:
                await client.publish(topic, b"x")
                (await first(deliveries)).ack()
            async with client.subscribe(topic) as deliveries:
                await client.publish(topic, b"y")
                assert (await first(deliveries)).body == b"y"

    asyncio.run(scenario())


def test_a_url_may_hold_subscriptions(mosquitto: Server) -> None:
    topic = unique("held")

    async def scenario() -> None:
        url = f"mqtt://{mosquitto.address}?hold={topic}@s"
        for number in range(2):
            async with penstock.connect(url) as client:
                await client.publish(topic, str(number))
        async with penstock.connect(url) as client:
            [row] = await client.subscriptions(topic)
            assert row["policy"] == {"retry": {"max_attempts": None}}
            async with client.subscribe(topic, "s", retry=ENDLESS) as deliveries:
                assert [m.body for m in await several(deliveries, 2)] == [b"0", b"1"]

    asyncio.run(scenario())


def test_version_3_carries_bodies(mosquitto: Server) -> None:
    topic = unique("old")

    async def scenario() -> None:
        url = f"mqtt://{mosquitto.address}?version=3.1.1"
        async with penstock.connect(url) as client, penstock.connect(url) as other:
            assert not client.capabilities.has_expiry
            await client.publish(topic, b"nobody")  # 3.1.1 does not tell
            for qos in (1, 2):
                await client.create_subscription(topic, f"q{qos}", qos=qos, retry=ENDLESS)
            await client.publish_many(topic, [b"1", b"2"])
            for qos in (1, 2):
                for count in (2, 1):  # one of them is acked, the other comes again
                    async with other.subscribe(
                        topic, f"q{qos}", qos=qos, retry=ENDLESS
                    ) as deliveries:
                        got = await several(deliveries, count)
                        assert got[-1].body == b"2"
                        got[0].ack()
            async with other.subscribe(topic, "q2", qos=2, retry=ENDLESS) as deliveries:
                await nothing(deliveries)
            with pytest.raises(Unsupported, match=r"headers: not available.*3\.1\.1"):
                await client.publish(topic, b"x", headers={"a": "b"})
            with pytest.raises(Unsupported, match=r"absent body: not available.*3\.1\.1"):
                await client.publish(topic)
            with pytest.raises(Unsupported, match="expires_at"):
                await client.publish(topic, b"x", ttl_s=5)
            for qos in (1, 2):
                await client.delete_subscription(topic, f"q{qos}")

    asyncio.run(scenario())


def test_messages_of_other_programs_are_delivered(mosquitto: Server) -> None:
    topic = unique("foreign")

    async def scenario() -> None:
        async with (
            penstock.connect(f"mqtt://{mosquitto.address}") as client,
            client.subscribe(f"{topic}/#", "s", retry=ENDLESS) as deliveries,
        ):
            await asyncio.to_thread(
                other_programs.multiple,
                [(f"{topic}/plain", b"17", 1, False), (f"{topic}/raw", b"\xff", 0, False)],
                hostname="127.0.0.1", port=mosquitto.port,
            )  # fmt: skip
            one, two = await several(deliveries, 2)
            assert (one.topic, one.json(), one.headers) == (f"{topic}/plain", 17, {})
            assert (two.topic, two.body) == (f"{topic}/raw", b"\xff")
            assert one.id != two.id

    asyncio.run(scenario())


def test_who_comes_back_to_a_pattern_gets_its_place_however_slowly_it_was_left(
    mosquitto: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic, close = unique("slow"), MqttFeed.close

    async def slowly(feed: MqttFeed) -> None:
        await asyncio.sleep(0.3)
        await close(feed)

    monkeypatch.setattr(MqttFeed, "close", slowly)

    async def scenario() -> None:
        async with penstock.connect(f"mqtt://{mosquitto.address}") as client:
            async with client.subscribe(f"{topic}/+", "s", retry=ENDLESS):
                pass  # its session is there from now on
            await client.publish(f"{topic}/1", b"x")
            async with client.subscribe(f"{topic}/+", "s", retry=ENDLESS) as deliveries:
                message = await first(deliveries)
                assert message.body == b"x"
                message.ack()

    asyncio.run(scenario())


def test_names_of_the_broker_are_refused(mosquitto: Server) -> None:
    async def scenario() -> None:
        async with penstock.connect(f"mqtt://{mosquitto.address}") as client:
            with pytest.raises(InvalidName, match="keep names that begin with"):
                await client.publish("$SYS/x", b"x")

    asyncio.run(scenario())


def test_the_first_of_a_host_holds_messages_and_others_leave_nothing_behind(
    mosquitto: Server,
) -> None:
    topic = unique("members")

    async def scenario() -> None:
        async with penstock.connect(f"mqtt://{mosquitto.address}?client=here") as client:
            one = await client.subscribe(topic, "s", retry=ENDLESS)
            two = await client.subscribe(topic, "s", retry=ENDLESS)
            [row] = await client.subscriptions(topic)
            assert len(row["consumers"]) == 2
            with pytest.raises(SubscriptionInUse):
                await client.delete_subscription(topic, "s")
            await two.close()
            await client.publish_many(topic, [b"0", b"1", b"2", b"3"])
            assert {m.body for m in await several(one, 4)} == {b"0", b"1", b"2", b"3"}
            await one.close()
            taken = slots.take(f"mqtt://{mosquitto.address}", client_id("s", "here", topic, 0))
            assert taken is not None
            taken.free()
            await client.delete_subscription(topic, "s")
            with pytest.raises(Unsupported, match="no subscription"):
                await client.publish(topic, b"x")

    asyncio.run(scenario())


def test_a_named_consumer_of_a_multicast_is_there_once(mosquitto: Server) -> None:
    topic = unique("screens")

    async def scenario() -> None:
        options: dict[str, Any] = {"kind": "multicast", "consumer": "hall", "retry": ENDLESS}
        async with (
            penstock.connect(f"mqtt://{mosquitto.address}") as client,
            client.subscribe(topic, "m", **options),
        ):
            with pytest.raises(SubscriptionInUse, match="different names"):
                await client.subscribe(topic, "m", **options)

    asyncio.run(scenario())


def test_rights_are_told_by_name(tmp_path: Path) -> None:
    program = servers.program_of("mosquitto", "mosquitto")
    (tmp_path / "rights").write_text("topic readwrite open/#\n", encoding="utf-8")

    def make(port: int) -> Server:
        settings = tmp_path / "mosquitto.conf"
        settings.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous true\nuser root\n"
            f"acl_file {tmp_path / 'rights'}\n",
            encoding="utf-8",
        )
        return Server([str(program), "-c", str(settings)], port, tmp_path)

    async def scenario(server: Server) -> None:
        async with penstock.connect(f"mqtt://{server.address}") as client:
            with pytest.raises(AccessRefused, match="may not publish there"):
                await client.publish("closed/a", b"x")
            # Nobody reads the notes here; the client goes by what it knows itself.
            async with client.subscribe("open/a", "s", retry=ENDLESS) as deliveries:
                await client.publish("open/a", b"x")
                assert (await first(deliveries)).body == b"x"

    with starting(lambda: make) as server:
        asyncio.run(scenario(server))


def test_a_consumer_that_dies_is_not_listed_any_more(mosquitto: Server) -> None:
    topic = unique("gone")

    async def scenario() -> None:
        async with penstock.connect(f"mqtt://{mosquitto.address}") as client:
            await client.create_subscription(topic, "s", retry=ENDLESS)

            async def is_listed() -> bool:
                [row] = await client.subscriptions(topic)
                return bool(row["consumers"])

            async def is_gone() -> bool:
                return not await is_listed()

            child = await asyncio.create_subprocess_exec(
                sys.executable, "-c", CONSUMER, f"mqtt://{mosquitto.address}", topic
            )
            try:
                await until(is_listed, "the consumer")
            finally:
                child.kill()
                await child.wait()
            await until(is_gone, "its end")

    asyncio.run(scenario())


def test_a_server_that_is_not_there_is_named_with_the_time_it_was_tried() -> None:
    async def scenario(port: int) -> None:
        url = f"tcp://me:secret1@127.0.0.1:{port}?connect_s=0.2"
        with (
            noticed() as standstill,
            pytest.raises(Unavailable, match=f"127.0.0.1:{port}") as caught,
        ):
            await penstock.connect(url).open()
        assert 0.2 <= seconds_told(str(caught.value)) < 1 + standstill.seconds

    with nobody() as port:
        asyncio.run(scenario(port))
