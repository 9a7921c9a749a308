"""The listener: who may connect, who is who, what outlives a connection, how it ends."""

import asyncio
import json
from pathlib import Path

import pytest

from penstock.batch import Batch
from penstock.broker.broker import Broker
from penstock.journal.memory import MemoryDisk
from penstock.server import lines
from penstock.server.lines import LinesListener
from penstock.server.lines_settings import LinesSettings
from penstock.server.listening import Listener
from tests.broker.rig import ManualClock
from tests.server.lines_rig import Talker, folder_broker, listening, memory_broker, run, until


async def _closed(broker: Broker) -> None:
    await asyncio.get_running_loop().run_in_executor(None, broker.close)


def test_it_is_a_listener_and_says_where_it_listens() -> None:
    async def scenario() -> None:
        async with listening() as listener:
            known: Listener = listener
            assert known.name == "lines"
            host, _, port = known.address.partition(":")
            assert host == "127.0.0.1"
            assert int(port) > 0
            other = LinesListener(listener.broker, "127.0.0.1", int(port))
            with pytest.raises(OSError, match="address already in use"):
                await other.start()
            await other.stop()

    run(scenario)


def test_a_listener_that_never_started_stops() -> None:
    async def scenario() -> None:
        broker = memory_broker()
        listener = LinesListener(broker)
        assert listener.address == "127.0.0.1:8000"
        await listener.stop()
        await _closed(broker)

    run(scenario)


# -- who is who ---


def test_a_client_with_a_name_finds_its_queue_again() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as bob:
            await bob.pub("t", "0")
            async with await Talker.connect(listener, "alice") as alice:
                await alice.sub("t")
                await bob.pub("t", "held", 5)
                assert (await alice.event())["id"] == "held"
                assert await alice.ask("quit") == "bye"
            await bob.pub("t", "low", 1)
            await bob.pub("t", "high", 9)
            async with await Talker.connect(listener, "alice") as alice:
                await alice.sub("t")
                for id in ("high", "held", "low"):
                    assert (await alice.event())["id"] == id
                    assert await alice.ask(f"ack t {id}") == f"ok {id}"
            (row,) = listener.broker.subscriptions("t")
            assert (row["subscription"], row["acked"], row["unexplained"]) == ("line.alice", 3, 0)

    run(scenario)


def test_the_newest_connection_has_the_name_and_the_older_is_told() -> None:
    async def scenario() -> None:
        async with (
            listening() as listener,
            await Talker.connect(listener, "alice") as old,
            await Talker.connect(listener) as bob,
        ):
            await bob.pub("t", "0")
            await old.sub("t")
            await bob.pub("t", "1")
            assert (await old.event())["id"] == "1"
            async with await Talker.connect(listener, "alice") as new:
                told = "closing: alice is connected from elsewhere; its queues are there"
                assert await old.line() == told
                assert await old.line() == ""
                await new.sub("t")
                assert (await new.event())["id"] == "1"
                assert await new.ask("ack t 1") == "ok 1"

    run(scenario)


def test_a_name_may_be_changed_and_is_free_again() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener, "alice") as first:
            assert await first.ask("id carol") == "ok carol"
            async with await Talker.connect(listener, "alice") as second:
                await first.silence()
                await second.silence()
            await until(lambda: listener.counts()["connections"] == 1)
            async with await Talker.connect(listener, "alice"):
                await first.silence()

    run(scenario)


def test_the_queue_of_an_anonymous_client_ends_with_its_connection_and_is_counted() -> None:
    async def scenario() -> None:
        async with listening() as listener, await Talker.connect(listener) as bob:
            await bob.pub("t", "0")
            async with await Talker.connect(listener) as alice:
                await alice.sub("t")
                (row,) = listener.broker.subscriptions("t")
                assert row["subscription"].startswith("line.~")
                for id in "123":
                    await bob.pub("t", id)
                await alice.event()
            await until(lambda: listener.dropped_events == 3)
            assert listener.broker.subscriptions("t") == []

    run(scenario)


def test_each_subscriber_has_a_queue_of_its_own() -> None:
    async def scenario() -> None:
        async with (
            listening() as listener,
            await Talker.connect(listener, "alice") as alice,
            await Talker.connect(listener) as bob,
        ):
            await bob.pub("t", "0")
            await alice.sub("t")
            await bob.sub("t")
            await alice.pub("t", "1")
            assert (await alice.event())["id"] == "1"
            assert await alice.ask("ack t 1") == "ok 1"
            assert (await bob.event())["id"] == "1"
            await alice.pub("t", "2")
            assert (await alice.event())["id"] == "2"
            assert await alice.ask("ack t 2") == "ok 2"
            assert await bob.ask("ack t 1") == "ok 1"
            assert (await bob.event())["id"] == "2"  # held for bob although alice is done with it

    run(scenario)


# -- what outlives the broker ---


@pytest.mark.parametrize("is_crash", [False, True])
def test_a_broker_that_starts_again_has_every_queue_of_a_name(
    is_crash: bool, tmp_path: Path
) -> None:
    async def before() -> None:
        broker = folder_broker(tmp_path)
        listener = LinesListener(broker, "127.0.0.1", 0)
        await listener.start()
        alice = await Talker.connect(listener, "alice")
        nameless = await Talker.connect(listener)
        await alice.pub("t", "0")
        await alice.sub("t")
        await nameless.sub("t")
        for id, priority in (("1", 1), ("2", 2), ("3", 3)):
            await nameless.pub("t", id, priority)
            if id == "1":
                await nameless.event()
        assert (await alice.event())["id"] == "1"
        assert await alice.ask("ack t 1") == "ok 1"
        assert (await alice.event())["id"] == "3"
        if is_crash:
            await asyncio.get_running_loop().run_in_executor(None, broker.abandon)
        await listener.stop()
        if not is_crash:
            await _closed(broker)
        await alice.close()
        await nameless.close()

    async def after() -> None:
        broker = folder_broker(tmp_path)
        async with listening(broker) as listener:
            assert [row["subscription"] for row in broker.subscriptions("t")] == ["line.alice"]
            if is_crash:
                assert listener.dropped_events == 3
            async with await Talker.connect(listener, "alice") as alice:
                await alice.sub("t")
                for id in ("3", "2"):
                    assert (await alice.event())["id"] == id
                    assert await alice.ask(f"ack t {id}") == f"ok {id}"
                await alice.pub("t", "4")
                assert (await alice.event())["id"] == "4"
        await _closed(broker)

    run(before)
    run(after)


# -- time ---


def test_an_event_stays_with_a_client_that_thinks_longer_than_its_lease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "TICK_S", 0.02)

    async def scenario() -> None:
        clock = ManualClock()
        broker = Broker.open(MemoryDisk(), clock=clock)
        async with listening(broker) as listener, await Talker.connect(listener, "alice") as alice:
            await alice.pub("t", "0")
            await alice.sub("t")
            loop = asyncio.get_running_loop()
            change = {"lease_s": 1.0}
            await loop.run_in_executor(None, broker.alter_subscription, "t", "line.alice", change)
            await alice.pub("t", "1")
            assert (await alice.event())["id"] == "1"
            (consumer,) = broker.engine.consumers.values()
            (lease,) = consumer.leases.values()
            for _ in range(5):  # each time half a lease passes, and it is renewed meanwhile
                clock.advance(0.5)
                await until(lambda: lease.deadline >= clock.now() + 1000)
            assert await alice.ask("ack t 1") == "ok 1"  # and it did not come a second time
            (row,) = broker.subscriptions("t")
            assert row["acked"] == 1
        await _closed(broker)

    run(scenario)


# -- the end ---


def test_a_client_that_holds_an_event_may_settle_it_while_the_broker_drains() -> None:
    async def scenario() -> None:
        async with listening() as listener:
            alice = await Talker.connect(listener, "alice")
            await alice.pub("t", "0")
            await alice.sub("t")
            bob = await Talker.connect(listener)
            await bob.pub("t", "1")
            await bob.pub("t", "2")
            await alice.event()
            listener.broker.drain()
            listener.drain()
            assert (await alice.line()).startswith("stopping: the broker is stopping; ack or nack")
            alice.say('pub t {"id":"late"}')
            assert (await alice.line()).endswith("[draining]")
            alice.say("ack t 1")
            assert await alice.line() == "ok 1"
            assert (await alice.line()).startswith("closing: the broker is stopping; what was")
            assert await alice.line() == ""
            await alice.close()
            await bob.close()
            (row,) = listener.broker.subscriptions("t")
            assert (row["acked"], row["waiting"]) == (1, 1)

    run(scenario)


def test_a_drain_answers_what_was_read_tells_every_client_and_takes_nothing_more() -> None:
    async def scenario() -> None:
        async with listening() as listener:
            alice = await Talker.connect(listener, "alice")
            bob = await Talker.connect(listener)
            await alice.pub("t", "0")
            await alice.sub("t")
            await bob.pub("t", "1")
            await alice.event()
            alice.writer.write(b"".join(b'pub t {"id":"a%d"}\r\n' % n for n in range(100)))
            assert await alice.line() == "ok a0"
            listener.broker.drain()
            listener.drain()
            listener.drain()
            alice.say('pub t {"id":"late"}')
            alice.say("nack t 1")
            said = []
            while line := await alice.line():
                said.append(line)
            assert said[-1].startswith("closing: the broker is stopping; what was answered ok is")
            assert (await bob.line()).startswith("closing: the broker is stopping")
            assert await bob.line() == ""
            confirmed = {line.removeprefix("ok ") for line in said if line.startswith("ok ")}
            with pytest.raises(OSError):  # noqa: PT011 - refused, or reset, as the system likes
                await Talker.connect(listener)
            await until(lambda: not listener.counts()["connections"])
            log = {
                frame.id_of(Batch(frame.batch), index)
                for _, frame in listener.broker.held("t")
                for index in frame.indexes
            }
            assert confirmed <= log
            await alice.close()
            await bob.close()

    run(scenario)


def test_stopping_twice_is_harmless_and_ends_clients_that_do_not_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(lines, "STOP_S", 0.2)

    async def scenario() -> None:
        async with listening() as listener:
            alice = await Talker.connect(listener)
            alice.reader._transport.pause_reading()  # type: ignore[attr-defined]
            alice.writer.write(b"help\r\n" * 20_000)
            await until(lambda: bool(listener._watched))
            await listener.stop()
            await listener.stop()
            assert listener.counts()["connections"] == 0
            alice.writer.transport.abort()

    run(scenario)


def test_too_many_connections_are_told_so() -> None:
    async def scenario() -> None:
        async with (
            listening(settings=LinesSettings(connections_max=2)) as listener,
            await Talker.connect(listener),
            await Talker.connect(listener) as second,
        ):
            host, _, port = listener.address.partition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            assert await reader.readline() == (
                b"closing: there are 2 connections already; try later\r\n"
            )
            assert await reader.read() == b""
            writer.close()
            await writer.wait_closed()
            await second.silence()

    run(scenario)


def test_many_idle_connections_harm_nobody() -> None:
    async def scenario() -> None:
        async with listening() as listener:
            idle = [await Talker.connect(listener) for _ in range(500)]
            async with await Talker.connect(listener) as alice:
                await alice.pub("t", "1")
                _, own = [json.loads(line) for line in await alice.listed("stats")]
                assert own["lines"]["connections"] == 501
            for each in idle:
                each.writer.close()
            await until(lambda: not listener.counts()["connections"])

    run(scenario)
