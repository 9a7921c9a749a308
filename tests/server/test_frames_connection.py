"""What one connection may do: slow senders, slow readers, wrong bytes; others are unharmed."""

import asyncio
import logging
import random
import time

import pytest
from msgspec.structs import replace

from penstock.batch import encode_many
from penstock.server.frames_limits import FramesLimits
from penstock.vocabulary.errors import PenstockError, ProtocolError
from penstock.vocabulary.wishes import Wish
from penstock.wire import frames, frames_claims
from penstock.wire.frames import Type
from penstock.wire.frames_errors import decode_error
from penstock.wire.frames_publish import publish_head
from tests.drivers.remote.rig import Served, until
from tests.server.test_frames import HELLO, Raw

PATIENT = FramesLimits(handshake_s=60, frame_s=60, write_s=60, idle_s=60, lost_s=60)
"""Only what a test is about ends soon, so that a busy machine ends nothing else."""
PUBLISHER = bytes([2]) * 16


def welcomed(served: Served) -> Raw:
    raw = Raw(served.port)
    raw.send(HELLO)
    found = raw.next()
    assert found is not None
    assert found[0] == Type.WELCOME
    return raw


def published(number: int, batch: bytes, count: int, sequence: int = 0) -> bytes:
    head = publish_head(b"orders", 0, count, PUBLISHER, 0, sequence, 0, 0)
    return frames.frame(Type.PUBLISH, number, head + batch)


def error_of(raw: Raw) -> PenstockError:
    found = raw.next()
    assert found is not None
    assert found[0] == Type.ERROR
    return decode_error(found[3])


def test_a_client_byte_by_byte_is_served() -> None:
    with Served(limits=PATIENT) as served:
        raw = Raw(served.port)
        for byte in HELLO + published(7, encode_many([b"x"]), 1):
            raw.send(bytes((byte,)))
        first, second = raw.next(), raw.next()
        assert first is not None
        assert second is not None
        assert (first[0], second[0], second[2]) == (Type.WELCOME, Type.STORED, 7)
        raw.close()


def test_many_frames_in_one_piece_are_answered_in_order() -> None:
    with Served() as served:
        raw = welcomed(served)
        batch = encode_many([b"x"] * 3)
        raw.send(b"".join(published(n, batch, 3, 3 * n) for n in range(200)))
        numbers = []
        for _ in range(200):
            found = raw.next()
            assert found is not None
            assert found[0] == Type.STORED
            numbers.append(found[2])
        assert numbers == list(range(200))
        raw.close()


def test_two_gibibytes_are_refused_at_once(caplog: pytest.LogCaptureFixture) -> None:
    with Served() as served, caplog.at_level(logging.WARNING, "penstock.server"):
        raw = welcomed(served)
        raw.send(frames.HEADER.pack(2 * 1024**3, Type.PUBLISH, 0, 0, 1, 0))
        error = error_of(raw)
        assert isinstance(error, ProtocolError)
        assert "2147483648" in error.text
        assert raw.next() is None
        raw.close()
    assert any("2147483648" in record.getMessage() for record in caplog.records)


def test_wrong_bytes_end_their_own_connection_only() -> None:
    chance = random.Random(7)

    async def scenario(served: Served) -> None:
        async with served.client() as client:
            for n in range(60):
                raw = Raw(served.port)
                data = HELLO if n % 3 else b""
                raw.send(data + chance.randbytes(chance.randint(1, 400)))
                raw.socket.shutdown(1)
                await asyncio.to_thread(raw.rest)
                raw.close()
                receipt = await client.publish("orders", b"x")
                assert receipt.offset == n

    with Served() as served:
        asyncio.run(scenario(served))
        # What is left of it is gone too.
        deadline = time.monotonic() + 20
        while served.call(lambda: len(served.listener.connections)) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not served.listener.connections


def test_a_changed_bit_is_refused() -> None:
    with Served() as served:
        raw = welcomed(served)
        data = bytearray(published(3, encode_many([b"x"]), 1))
        data[-12] ^= 4
        raw.send(bytes(data))
        assert "checksum" in error_of(raw).text
        raw.close()


# -- time ----------------------------------------------------------------------------------------


def test_nothing_within_the_handshake_time_ends_it() -> None:
    with Served(limits=replace(PATIENT, handshake_s=0.3)) as served:
        raw = Raw(served.port)
        assert b"8000" in raw.rest()
        raw.close()


@pytest.mark.parametrize("is_trickling", [False, True])
def test_a_frame_that_does_not_end_ends_the_connection(
    is_trickling: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with Served(limits=PATIENT) as served, caplog.at_level(logging.WARNING, "penstock.server"):
        raw = welcomed(served)
        (connection,) = served.listener.connections
        connection.limits = replace(PATIENT, handshake_s=0.3)
        data = published(3, encode_many([bytes(5000)]), 1)
        raw.send(data[:100])
        until = time.monotonic() + 20
        at = 100
        while served.call(lambda: len(served.listener.connections)) and time.monotonic() < until:
            if is_trickling and at < 4000:
                try:
                    raw.send(data[at : at + 1])
                except ConnectionError:  # it is ended, and not forgotten yet
                    at = len(data)
                at += 1
            time.sleep(0.02)
        assert not served.listener.connections
        said = raw.rest()
        assert b"a frame came with less than" in said or is_trickling  # unread bytes may take it
        raw.close()
    assert any("dropped: a frame" in record.getMessage() for record in caplog.records)


def test_an_idle_client_is_asked_and_a_silent_one_given_up(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client:
            raw = welcomed(served)
            await until(lambda: len(served.listener.connections) == 1, 20)
            assert await client.publish("orders", b"x")  # it answers, and stays
            raw.close()

    limits = replace(PATIENT, idle_s=0.5, lost_s=2.0)
    with Served(limits=limits) as served, caplog.at_level(logging.WARNING, "penstock.server"):
        asyncio.run(scenario(served))
    assert any("nothing came for" in record.getMessage() for record in caplog.records)


def test_a_reader_that_takes_nothing_is_dropped_and_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(served: Served) -> None:
        async with served.client() as client:
            await client.publish_many("orders", [bytes(100_000)] * 200)
            raw = welcomed(served)
            wish = Wish("orders", "slow", None, None, 1000, 1 << 40, "raw")
            raw.send(frames.frame(Type.ATTACH, 5, frames_claims.encode_wish(wish)))
            async with client.subscribe("orders", "quick") as deliveries:
                for _ in range(200):
                    message = await deliveries.receive(timeout_s=20)
                    assert message is not None
                    message.ack()
            await until(lambda: len(served.listener.connections) == 1, 20)
            raw.close()

    limits = replace(PATIENT, write_s=1.0)
    with Served(limits=limits) as served, caplog.at_level(logging.WARNING, "penstock.server"):
        asyncio.run(scenario(served))
    assert any("it took no more than" in record.getMessage() for record in caplog.records)


def test_what_waits_for_a_reader_is_bounded() -> None:
    limits = FramesLimits(credit_bytes_max=500_000, write_s=60)

    async def scenario(served: Served) -> None:
        async with served.client() as client:
            await client.publish_many("orders", [bytes(100_000)] * 100)
            raw = welcomed(served)
            for channel in range(1, 4):
                wish = Wish("orders", f"s{channel}", None, None, 1000, 1 << 40, "raw")
                raw.send(frames.frame(Type.ATTACH, channel, frames_claims.encode_wish(wish)))
            await until(lambda: len(served.broker.engine.consumers) == 3)
            await asyncio.sleep(0.3)
            waiting = served.call(
                lambda: max(connection._waiting for connection in served.listener.connections)
            )
            assert waiting <= 3 * 600_000
            raw.close()

    with Served(limits=limits) as served:
        asyncio.run(scenario(served))


def test_an_idle_connection_takes_little_memory() -> None:
    with Served() as served:
        raw = welcomed(served)
        (connection,) = served.listener.connections
        assert connection.reader.capacity == frames.BUFFER_BYTES_FIRST
        raw.close()
