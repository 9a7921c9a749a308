"""How a connection behaves: order, bad input, slow and broken clients."""

import asyncio
import logging
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.server import lines, lines_connection
from penstock.server.lines_settings import LinesSettings
from penstock.vocabulary import limits
from penstock.vocabulary.policy import TopicPolicy
from tests.server.lines_rig import PATIENCE_S, Talker, listening, run, until

BAD = [
    (b"frob", "error: unknown command: frob"),
    (b"pub", "error: usage: pub <topic> <json>"),
    (b"pub t", "error: usage: pub <topic> <json>"),
    (b"pub t ", "error: the event is not JSON"),
    (b"pub  t {}", "error: usage: pub <topic> <json>"),
    (b"pub t hello", "error: the event is not JSON"),
    (b"pub t [1]", "error: an event is a JSON object"),
    (b"pub t {}", "error: the event has no id"),
    (b'pub t {"id":1,"priority":"high"}', "error: priority is not a number"),
    (b'pub t {"id":1,"id":2}', 'error: the event has the key "id" twice'),
    (b'pub t {"id":1,"msg":NaN}', "error: the event is not JSON: NaN"),
    (b'pub t {"id":1,"msg":' + b"[" * 99 + b"]" * 99 + b"}", "error: the event has more than 64"),
    (b'pub t {"id":1,"msg":"\xff"}', "error: the event is not UTF-8 text"),
    (b'pub \xc3\x28 {"id":1}', "error: the topic is not UTF-8 text"),
    (b'pub a#b {"id":1}', "error: topic 'a#b' contains '#'"),
    (b'pub t.dead.s {"id":1}', "error: "),
    (b'pub a\x1b[2J {"id":1}', "error: topic name 'a\\x1b[2J' contains a space or control"),
    (b"pub " + b"t" * 300 + b' {"id":1}', "error: topic name of 300 bytes is over the limit"),
    (b"sub", "error: usage: sub <topic>"),
    (b"sub nothing", "error: topic nothing does not exist"),
    (b"sub \x1b[2J", "error: topic \\x1b[2J does not exist"),
    (b"unsub nothing", "error: you are not subscribed to topic nothing"),
    (b"ack t", "error: usage: ack <topic> <id>"),
    (b"ack t 1", "error: event with id 1 does not exist"),
    (b"nack t 1", "error: event with id 1 does not exist"),
    (b"id \x1b", "error: "),
    (b"\xff\xfe", "error: the line is not UTF-8 text"),
    (b"\x00", "error: unknown command: \\x00"),
    (b"x" * (limits.LINE_BYTES_MAX + 2), "error: the line is longer than"),
]  # fmt: skip


def test_bad_input_has_a_clear_error_and_the_connection_is_kept() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            for line, expected in BAD:
                answer = await alice.ask(line)
                assert answer.startswith(expected), (line[:40], answer)
                assert answer.isprintable()
            await alice.pub("t", "1")
            assert listener.counts()["published"] == 1

    run(scenario)


def test_bad_lines_among_good_ones_are_answered_in_their_places() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            expected = []
            data = b""
            for number in range(300):
                line, reply = BAD[number % (len(BAD) - 1)]
                data += line + b"\n" + b'pub t%d {"id":%d}\r\n' % (number % 3, number)
                expected += [reply, f"ok {number}"]
            alice.writer.write(data)
            for reply in expected:
                assert (await alice.line()).startswith(reply)

    run(scenario)


def test_a_client_may_send_byte_by_byte_and_end_its_lines_with_lf() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            for byte in b'pub t {"id":"1","priority":3,"msg":"hi"}\nsub t\r\nid\n':
                alice.writer.write(bytes([byte]))
                await alice.writer.drain()
                await asyncio.sleep(0)
            assert await alice.line() == "ok 1"
            assert await alice.line() == "successfully subscribed to topic t"
            assert (await alice.line()).startswith("ok ~")

    run(scenario)


def test_empty_lines_are_nothing() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            alice.writer.write(b"\r\n\n\r\n")
            assert (await alice.ask("id")).startswith("ok ~")

    run(scenario)


def test_ctrl_c_in_telnet_gives_a_line_up_and_telnet_is_answered() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            alice.writer.write(b"pub half a li\xff\xf4\xff\xfd\x06")
            assert await alice.reader.readexactly(3) == b"\xff\xfc\x06"
            await alice.silence()

    run(scenario)


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run])
def test_pipelined_events_are_answered_in_order_and_stored_in_order(
    runner: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    count = 20_000

    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            lines = [b'pub t {"id":"%d","priority":0,"msg":%d}' % (n, n) for n in range(count)]
            alice.writer.write(b"\r\n".join(lines) + b"\r\n")
            for number in range(count):
                assert await alice.line() == f"ok {number}"
            found = [offset for _, frame in listener.broker.held("t") for offset in frame.offsets]
            assert found == list(range(count))
            assert listener.counts()["published"] == count

    runner(scenario())


def test_replies_come_in_the_order_of_commands_whatever_takes_long() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            commands = [
                'pub t {"id":"1"}', "sub t", "topics", "unsub t", 'pub t {"id":"2"}', "sub t",
                "ack t 9", "peek t 1", "unsub t", "id", "frob",
            ]  # fmt: skip
            for _ in range(20):
                for command in commands:
                    alice.say(command)
            for _ in range(20):
                for expected in (
                    "ok 1", "successfully subscribed", "ok 1", "  {", "successfully unsub", "ok 2",
                    "successfully subscribed", "error: event with id 9", "ok 1", "  {",
                    "successfully unsubscribed", "ok ~", "error: unknown",
                ):  # fmt: skip
                    assert (await alice.line()).startswith(expected)

    run(scenario)


def test_a_topic_of_several_partitions_and_one_that_grows_takes_every_event() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            loop = asyncio.get_running_loop()
            broker = listener.broker
            await loop.run_in_executor(None, broker.create_topic, "t", 2, TopicPolicy())
            for start, partitions in ((0, 4), (100, 4), (200, 9)):
                for number in range(start, start + 100):
                    alice.say(f'pub t {{"id":{number}}}')
                grow = loop.run_in_executor(None, broker.alter_topic, "t", {}, partitions)
                for number in range(start, start + 100):
                    assert await alice.line() == f"ok {number}"
                await grow
            assert broker.describe_topic("t")["published"] == 300

    run(scenario)


def test_a_topic_that_is_made_again_goes_on() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            await alice.pub("t", "1")
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, listener.broker.delete_topic, "t")
            await alice.pub("t", "2")
            await alice.pub("t", "3")
            assert listener.broker.describe_topic("t")["published"] == 2
            assert listener.broker.describe_topic("t")["policy"] == {"on_duplicate": "replace"}

    run(scenario)


def test_a_client_waits_while_the_broker_has_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "PENDING_BYTES_MAX", 500)

    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            for number in range(500):
                alice.say(b'pub t {"id":%d,"priority":1,"msg":"%b"}' % (number, b"x" * 200))
            for number in range(500):
                assert await alice.line() == f"ok {number}"

    run(scenario)


# -- clients that break ---


def test_what_was_said_before_the_end_is_done() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            alice.writer.write(b'pub t {"id":1}\npub t {"id":2}\ntopics\nid')
            alice.writer.write_eof()
            assert await alice.line() == "ok 1"
            assert await alice.line() == "ok 2"
            assert await alice.line() == "ok 1"
            assert '"messages":2' in await alice.line()
            assert await alice.line() == ""

    run(scenario)


@pytest.mark.parametrize("last", [b"", b"quit\n"])
def test_an_ack_just_before_the_end_counts(last: bytes) -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener, "alice") as alice:
            await alice.pub("t", "0")
            await alice.sub("t")
            await alice.pub("t", "1")
            await alice.event()
            alice.writer.write(b"ack t 1\n" + last)
            alice.writer.write_eof()
            assert await alice.line() == "ok 1"
            (row,) = listener.broker.subscriptions("t")
            assert (row["acked"], row["unexplained"]) == (1, 0)

    run(scenario)


def _reset(talker: Talker) -> None:
    """Breaks the connection as a machine does that loses power."""
    plain = talker.writer.get_extra_info("socket")
    plain.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    talker.writer.transport.abort()


def test_an_event_in_flight_comes_again_when_the_connection_breaks() -> None:
    async def scenario() -> None:
        async with listening() as listener:
            alice = await Talker.connect(listener, "alice")
            await alice.pub("t", "0")
            await alice.sub("t")
            await alice.pub("t", "1")
            await alice.event()
            _reset(alice)
            await until(lambda: not listener.counts()["connections"])
            async with await Talker.connect(listener, "alice") as again:
                await again.sub("t")
                assert (await again.event())["id"] == "1"
                assert await again.ask("ack t 1") == "ok 1"
            (row,) = listener.broker.subscriptions("t")
            assert (row["acked"], row["unexplained"]) == (1, 0)

    run(scenario)


def test_a_connection_that_breaks_in_the_middle_of_everything_harms_nobody() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            await alice.pub("t", "0")
            for number in range(20):
                bob = await Talker.connect(listener)
                bob.say("sub t")
                bob.say("unsub t")
                bob.say("sub t")
                bob.say("topics")
                bob.writer.write(b'pub t {"id":"b%d"}\npub t {"id":' % number)
                await bob.writer.drain()
                if number % 2:
                    await bob.line()
                _reset(bob)
            await until(lambda: listener.counts()["connections"] == 1)
            await until(lambda: not listener.broker.subscriptions("t"))
            await alice.pub("t", "1")

    run(scenario)


# -- clients that do not read ---


def test_a_client_that_does_not_read_replies_is_not_read_either_and_then_gets_all() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            count = 5_000
            sent = asyncio.create_task(_send(alice, b"help\r\n" * count))
            await asyncio.sleep(0.2)
            (connection,) = listener._connections
            assert connection.unread_bytes <= 2 * lines_connection.WRITE_HIGH_BYTES
            for _ in range(count):
                header = await alice.line()
                for _ in range(int(header.split()[1])):
                    await alice.line()
            await sent
            await alice.silence()

    run(scenario)


async def _send(talker: Talker, data: bytes) -> None:
    talker.writer.write(data)
    await talker.writer.drain()


def test_a_web_page_cannot_make_a_browser_send_commands(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, "penstock.server")

    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as browser:
            body = b'pub t {"id":"1","priority":1,"msg":"forged"}\r\n'
            await _send(browser, b"POST / HTTP/1.1\r\nHost: localhost:8000\r\n\r\n" + body)
            assert (await browser.line()).startswith("error: this port speaks lines, not HTTP")
            assert await browser.line() == ""
            async with await Talker.connect(listener) as bob:
                assert await bob.listed("topics") == []
        assert "it speaks HTTP, not lines" in caplog.text

    run(scenario)


def test_a_line_that_does_not_end_ends_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lines, "TICK_S", 0.05)
    caplog.set_level(logging.WARNING, "penstock.server")

    async def scenario() -> None:
        async with (
            listening(settings=LinesSettings(line_s=0.4)) as listener,
            await Talker.connect(listener, "patient") as patient,
            await Talker.connect(listener, "slow") as slow,
        ):
            listener.linger_s = PATIENCE_S  # what it is told is not lost while it goes on sending

            async def trickle() -> None:
                for byte in b"pub t " + b"x" * 1_000:
                    slow.writer.write(bytes((byte,)))
                    await asyncio.sleep(0.02)

            trickling = asyncio.create_task(trickle())
            for _ in range(4):  # one that ends its lines, and pauses between them, stays
                await asyncio.sleep(0.2)
                await _send(patient, b"to")
                assert len(await patient.listed("pics")) == 0
            assert await slow.line() == "error: the line did not end within 0.4 s; closing"
            assert await slow.line() == ""
            trickling.cancel()
            assert "line client slow at 127.0.0.1" in caplog.text
            assert "is let go: its line did not end within 0.4 s" in caplog.text
            assert listener.counts()["let_go"] == 1
            await slow.close()
            await until(lambda: listener.counts()["connections"] == 1)

    run(scenario)


def test_a_client_that_reads_nothing_is_let_go_and_its_events_come_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lines, "TICK_S", 0.05)
    caplog.set_level(logging.WARNING, "penstock.server")

    async def scenario() -> None:
        settings = LinesSettings(write_stall_s=0.3, credit=100)
        async with (
            listening(settings=settings) as listener,
            await Talker.connect(listener) as bob,
        ):
            alice = await Talker.connect(listener, "alice")
            await bob.pub("t", "0")
            await alice.sub("t")
            alice.reader._transport.pause_reading()  # type: ignore[attr-defined]
            for number in range(20):
                await bob.pub("t", str(number), 0, "x" * 900_000)
            await until(lambda: listener.counts()["connections"] == 1)
            assert listener.counts()["let_go"] == 1
            assert "line client alice at 127.0.0.1" in caplog.text
            assert "is let go: it read nothing" in caplog.text
            await alice.close()
            listener.settings = LinesSettings()  # whoever reads may take its time
            async with await Talker.connect(listener, "alice") as again:
                await again.sub("t")
                assert (await again.event())["id"] == "0"

    run(scenario)


# -- whatever comes ---


@settings(max_examples=15)
@given(
    st.lists(
        st.binary(max_size=40)
        | st.sampled_from([line for line, _ in BAD[:-1]])
        | st.sampled_from(
            [b"sub t", b"unsub t", b'pub t {"id":1}', b"ack t 1", b"topics", b"id a"]
        ),
        max_size=12,
    ),
    st.integers(1, 50),
)
def test_any_bytes_in_any_pieces_leave_the_connection_usable(parts: list[bytes], size: int) -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as alice:
            data = b"\r\n".join(parts) + b"\r\n"
            for at in range(0, len(data), size):
                alice.writer.write(data[at : at + size])
                await alice.writer.drain()
            alice.say(b"\r\nhelp quit")
            while "end the connection" not in (line := await alice.line()):
                assert line
            await alice.pub("fresh", "last")

    run(scenario)


def test_the_subscriptions_of_a_closed_broker_end_with_a_word() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener, "alice") as alice:
            await alice.pub("t", "0")
            await alice.sub("t")
            await asyncio.get_running_loop().run_in_executor(None, listener.broker.close)
            assert await alice.line() == "closed: topic t: the broker was closed"
            answer = await alice.ask('pub t {"id":1}')
            assert answer.startswith("error: ")
            assert answer.endswith("]")

    run(scenario)
