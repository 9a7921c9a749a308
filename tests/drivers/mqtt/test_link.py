"""One MQTT connection, on a real mosquitto."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

import penstock
from penstock.cli.bench import servers
from penstock.cli.bench.servers import Server
from penstock.drivers.foreign.address import Address, parse
from penstock.drivers.mqtt import OPTIONS, PORT
from penstock.drivers.mqtt.link import Link, Nature, _opened
from penstock.drivers.mqtt.parcels import Incoming, Packet
from penstock.vocabulary.errors import AccessRefused, InvalidArgument, Unavailable
from tests.contracts.suites.world import unique, until
from tests.servers import emulators
from tests.servers.fixtures import starting


def address_of(server: Server, options: str = "") -> Address:
    return parse(f"mqtt://{server.address}{options}", PORT, OPTIONS)


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Server]:
    """A server that this test may stop."""
    with starting(lambda: emulators.mosquitto(tmp_path / "mosquitto")) as server:
        yield server


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_goes_out_and_in(mosquitto: Server, version: int, qos: int) -> None:
    topic = unique("link")
    arrived: list[Incoming] = []

    async def scenario() -> None:
        address = address_of(mosquitto)
        link = Link(address, Nature(unique("in")), version, arrived.extend)
        assert await link.open() is False
        sender = Link(address, Nature(unique("out")), version)
        await sender.open()
        assert await link.subscribe(topic, qos, wants_retained=True) == qos
        packet = Packet(topic, b"x", qos, headers={"a": "b", "content-type": "text/plain"})
        assert await sender.publish([packet] * 3, 10) == [0, 0, 0]

        async def all_came() -> bool:
            return len(arrived) == 3

        await until(all_came, "three messages")
        for message in arrived:
            link.ack(message.mid, message.qos)
        await link.round_trip()
        await link.unsubscribe(topic)
        await link.close()
        await sender.close()
        await sender.close()

    asyncio.run(scenario())
    expected = {"a": "b", "content-type": "text/plain"} if version == 5 else {}
    assert [(m.topic, m.body, m.qos, m.headers) for m in arrived] == [
        (topic, b"x", qos, expected)
    ] * 3


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_not_acked_comes_again_to_the_same_session(mosquitto: Server, qos: int) -> None:
    topic, id = unique("again"), unique("session")

    async def once(*, does_ack: bool) -> list[tuple[bytes, bool]]:
        arrived: list[Incoming] = []
        link = Link(address_of(mosquitto), Nature(id, is_lasting=True), 5, arrived.extend)
        was_present = await link.open()
        if not was_present:
            await link.subscribe(topic, qos, wants_retained=False)
            assert await link.publish([Packet(topic, b"x", qos)], 10) == [0]

        async def came() -> bool:
            return bool(arrived)

        await until(came, "the message")
        if does_ack:
            link.ack(arrived[0].mid, qos)
            await link.round_trip()
        await link.close(ends_session=does_ack)
        return [(m.body, m.is_dup) for m in arrived]

    async def scenario() -> None:
        assert await once(does_ack=False) == [(b"x", False)]
        assert await once(does_ack=False) == [(b"x", True)]
        assert await once(does_ack=True) == [(b"x", True)]
        link = Link(address_of(mosquitto), Nature(id, is_lasting=True), 5)
        assert await link.open() is False, "the session was ended"
        await link.close(ends_session=True)

    asyncio.run(scenario())


def test_a_broken_connection_is_told_and_mended(own: Server) -> None:
    ups: list[bool] = []

    async def scenario() -> None:
        address = address_of(own, "?keepalive_s=5")
        link = Link(address, Nature(unique("x")), 5, on_up=ups.append)
        await link.open()
        await link.subscribe("t", 1, wants_retained=False)
        await asyncio.to_thread(own.stop)

        async def is_down() -> bool:
            return not link.is_up

        await until(is_down, "the end of the connection")
        with pytest.raises(Unavailable, match="is not connected"):
            await link.round_trip()
        with pytest.raises(Unavailable, match="is not connected"):
            await link.publish([Packet("t", b"x", 0)], 1)
        with pytest.raises(Unavailable, match="did not confirm"):
            await link.publish([Packet("t", b"lost?")], 0.1)
        waiting = asyncio.create_task(link.publish([Packet("t", b"x")], 60))
        await asyncio.to_thread(own.start)
        await waiting
        assert ups == [False]
        await link.close()

    asyncio.run(scenario())


def test_wrong_credentials_are_refused_and_never_printed(tmp_path: Path) -> None:
    program = servers.program_of("mosquitto", "mosquitto")

    def make(port: int) -> Server:
        settings = tmp_path / "mosquitto.conf"
        settings.write_text(
            f"listener {port} 127.0.0.1\nallow_anonymous false\nuser root\n", encoding="utf-8"
        )
        return Server([str(program), "-c", str(settings)], port, tmp_path)

    async def scenario(server: Server) -> None:
        for fields in ("", "&version=3.1.1"):
            url = f"mqtt://me:secret1@{server.address}?connect_s=5{fields}"
            with pytest.raises(AccessRefused, match="refused the connection") as raised:
                await penstock.connect(url).open()
            assert "secret1" not in str(raised.value)

    with starting(lambda: make) as server:
        asyncio.run(scenario(server))


def test_tls_files_that_are_not_there_are_named(mosquitto: Server) -> None:
    async def scenario() -> None:
        with pytest.raises(InvalidArgument, match="TLS files"):
            Link(address_of(mosquitto, "?tls_ca=/nowhere.pem"), Nature("x"), 5)

    asyncio.run(scenario())


def test_properties_of_other_programs_become_headers() -> None:
    properties = SimpleNamespace(
        UserProperty=[("a", "1"), ("a", "2"), ("b", "3")], ContentType="text/plain",
        ResponseTopic="answers", CorrelationData=b"\x01",
    )  # fmt: skip
    message = SimpleNamespace(
        topic="t", payload=b"x", qos=1, mid=5, dup=False, retain=False, properties=properties
    )
    assert _opened(message).headers == {
        "a": "1",
        "a#2": "2",
        "b": "3",
        "content-type": "text/plain",
        "mqtt-response-topic": "answers",
        "mqtt-correlation-data": "AQ==",
    }
