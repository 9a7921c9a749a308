"""Push: handlers are called, bounded, timed, drained; signals and errors end `run()`."""

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from penstock.client.client import Client, connect
from penstock.client.received import ReceivedMessage
from penstock.testing import MemoryBroker
from penstock.vocabulary.errors import Closed, InvalidArgument, Unsupported, UsageError
from penstock.vocabulary.message import Nack, Reject
from penstock.vocabulary.policy import Retry

PATIENCE_S = 30.0
"""How long anything is waited for that must happen."""


@dataclass
class Order:
    number: int


async def until(condition: Any) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        await asyncio.sleep(0.002)


async def counts(client: Client) -> dict[str, Any]:
    return (await client.subscriptions("orders"))[0]


def test_handlers_are_called_with_what_they_are_annotated_for() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            got: list[Any] = []

            @client.on_message("orders", "async")
            async def as_order(order: Order) -> None:
                got.append(("async", order))

            @client.on_message("orders", "thread")
            def as_dict(order: dict[str, int], message: ReceivedMessage) -> None:
                got.append(("thread", order, message.offset, threading.current_thread().name))

            assert as_order is not None
            running = asyncio.create_task(client.run())
            await client.publish("orders", json={"number": 7})
            await until(lambda: len(got) == 2)
            client.stop()
            await asyncio.wait_for(running, PATIENCE_S)
            assert ("async", Order(7)) in got
            [plain] = [each for each in got if each[0] == "thread"]
            assert plain[1:3] == ({"number": 7}, 0)
            assert "as_dict" in plain[3]
            rows = await client.subscriptions("orders")
            assert [row["acked"] for row in rows] == [1, 1]

    asyncio.run(scenario())


def test_outcomes_and_exceptions_settle_messages() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            seen: list[tuple[str, int]] = []

            @client.on_message("orders", "s", retry=Retry(first_s=0, max_s=0, max_attempts=2))
            async def handle(body: str, message: ReceivedMessage) -> Any:
                seen.append((body, message.attempt))
                match body:
                    case "nack":
                        return Nack(delay_s=0) if message.attempt == 1 else None
                    case "reject":
                        return Reject("unwanted")
                    case "raise":
                        raise ValueError("broken")
                    case "own":
                        message.ack()
                return None

            running = asyncio.create_task(client.run())
            for body in ("ack", "nack", "reject", "raise", "own", ""):
                await client.publish("orders", body)
            await until(lambda: len(seen) == 8)
            client.stop()
            await asyncio.wait_for(running, PATIENCE_S)
            broker.settle()
            assert sorted(seen) == [
                ("", 1), ("ack", 1), ("nack", 1), ("nack", 2), ("own", 1), ("raise", 1),
                ("raise", 2), ("reject", 1),
            ]  # fmt: skip
            dead = await client.dead_letters("orders", "s")
            reasons = {m.body: m.headers["penstock-dead-reason"] for m in dead}
            assert reasons == {b"reject": "unwanted", b"raise": "ValueError('broken')"}
            assert (await counts(client))["acked"] == 4

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("outcome", "text"),
    [
        (Nack(delay_s=-1), "delay_s must be seconds from 0"),
        (Nack(delay_s=1e9), "delay_s must be seconds from 0"),
        (Nack(reason=5), "reason must be text"),  # type: ignore[arg-type]
        (Reject(reason=None), "reason must be text"),  # type: ignore[arg-type]
    ],
)
def test_an_outcome_that_makes_no_sense_is_a_nack_and_run_goes_on(
    outcome: Any, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            got: list[bytes | None] = []

            @client.on_message("orders", "s", retry=Retry(max_attempts=1))
            async def handle(message: ReceivedMessage) -> Any:
                got.append(message.body)
                return outcome if message.body == b"first" else None

            running = asyncio.create_task(client.run())
            await client.publish("orders", b"first")
            await until(lambda: got)
            await client.publish("orders", b"second")
            await until(lambda: len(got) == 2)
            client.stop()
            await running
            broker.settle()
            [dead] = await client.dead_letters("orders", "s")
            assert dead.headers["penstock-dead-why"] == "max_attempts"
            assert text in dead.headers["penstock-dead-reason"]

    asyncio.run(scenario())
    [line] = [each for each in caplog.records if each.levelname == "ERROR"]
    assert text in line.getMessage()


def test_a_body_that_does_not_fit_is_rejected_with_the_path() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()

            @client.on_message("orders", "s")
            async def handle(order: Order) -> None:
                pytest.fail("it must not be called")

            running = asyncio.create_task(client.run())
            await client.publish("orders", json={"number": "seven"})
            await until(lambda: "orders.dead.s" in broker.broker.state.names)
            client.stop()
            await asyncio.wait_for(running, PATIENCE_S)
            broker.settle()
            [dead] = await client.dead_letters("orders", "s")
            assert "$.number" in dead.headers["penstock-dead-reason"]

    asyncio.run(scenario())


@pytest.mark.parametrize("is_async", [True, False])
def test_no_more_handlers_run_than_concurrency_allows(is_async: bool) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            running: list[int] = []
            peaks: list[int] = []

            def begin() -> None:
                running.append(1)
                peaks.append(len(running))

            if is_async:

                @client.on_message("orders", "s", concurrency=3)
                async def handle(body: bytes) -> None:
                    begin()
                    await until(lambda: len(peaks) >= 3)
                    await asyncio.sleep(0.003)
                    running.pop()
            else:

                @client.on_message("orders", "s", concurrency=3)
                def handle_in_thread(body: bytes) -> None:
                    begin()
                    ends = time.monotonic() + PATIENCE_S
                    while len(peaks) < 3 and time.monotonic() < ends:
                        time.sleep(0.002)
                    time.sleep(0.003)
                    running.pop()

            await client.publish_many("orders", [b"x"] * 20)
            serving = asyncio.create_task(client.run())
            await until(lambda: bool(peaks))
            assert (await counts(client))["leased"] <= 6
            await until(lambda: len(peaks) == 20 and not running)
            assert max(peaks) == 3
            client.stop()
            await asyncio.wait_for(serving, PATIENCE_S)
            assert (await counts(client))["acked"] == 20

    asyncio.run(scenario())


@pytest.mark.parametrize("is_async", [True, False])
def test_a_handler_that_takes_too_long_is_a_nack(is_async: bool) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            release = threading.Event()
            calls: list[int] = []
            options: dict[str, Any] = {
                "handler_timeout_s": 0.02,
                "retry": Retry(first_s=0, max_s=0),
            }

            if is_async:

                @client.on_message("orders", "s", **options)
                async def handle(message: ReceivedMessage) -> None:
                    calls.append(message.attempt)
                    if message.attempt == 1:
                        await asyncio.sleep(60)
            else:

                @client.on_message("orders", "s", **options)
                def handle_in_thread(message: ReceivedMessage) -> None:
                    calls.append(message.attempt)
                    if message.attempt == 1:
                        release.wait(PATIENCE_S)

            await client.publish("orders", b"x")
            serving = asyncio.create_task(client.run())
            await until(lambda: calls[:1] == [1])
            if not is_async:
                await asyncio.sleep(0.05)
                assert calls == [1]  # a thread cannot be interrupted, so its place stays taken
            release.set()
            await until(lambda: calls[:2] == [1, 2])
            async with asyncio.timeout(PATIENCE_S):
                # On a busy machine it may be too late again.
                while (await counts(client))["acked"] == 0:  # noqa: ASYNC110 - nobody tells
                    await asyncio.sleep(0.002)
            client.stop()
            await asyncio.wait_for(serving, PATIENCE_S)
            assert (await counts(client))["acked"] == 1

    asyncio.run(scenario())


def test_a_handlers_own_timeout_error_is_an_ordinary_failure() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()

            @client.on_message("orders", "s", retry=Retry(max_attempts=1))
            async def handle(body: bytes) -> None:
                raise TimeoutError("the database")

            await client.publish("orders", b"x")
            serving = asyncio.create_task(client.run())
            await until(lambda: "orders.dead.s" in broker.broker.state.names)
            client.stop()
            await asyncio.wait_for(serving, PATIENCE_S)
            broker.settle()
            [dead] = await client.dead_letters("orders", "s")
            assert dead.headers["penstock-dead-reason"] == "TimeoutError('the database')"

    asyncio.run(scenario())


def test_a_running_handler_keeps_its_lease() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            calls: list[int] = []
            finish = asyncio.Event()

            @client.on_message("orders", "s", lease_s=10, concurrency=2)
            async def handle(message: ReceivedMessage) -> None:
                calls.append(message.attempt)
                await finish.wait()

            await client.publish_many("orders", [b"0", b"1", b"2"])
            serving = asyncio.create_task(client.run())
            await until(lambda: len(calls) == 2)
            broker.advance(100)
            finish.set()
            await until(lambda: len(calls) == 3)
            client.stop()
            await asyncio.wait_for(serving, PATIENCE_S)
            assert calls == [1, 1, 1]
            assert (await counts(client))["acked"] == 3

    asyncio.run(scenario())


def test_a_drain_finishes_what_runs_and_hands_back_what_does_not() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            begun: list[bytes] = []
            finish = asyncio.Event()

            @client.on_message("orders", "s", credit=10)
            async def handle(body: bytes) -> None:
                begun.append(body)
                await finish.wait()

            await client.publish_many("orders", [b"0", b"1", b"2"])
            serving = asyncio.create_task(client.run())
            await until(lambda: begun == [b"0"])
            client.stop()
            await asyncio.sleep(0.01)
            assert not serving.done()
            finish.set()
            await asyncio.wait_for(serving, PATIENCE_S)
            assert begun == [b"0"]
            async with client.subscribe("orders", "s") as deliveries:
                got = [await deliveries.receive(timeout_s=PATIENCE_S) for _ in range(2)]
                assert [(m.body, m.attempt) for m in got if m] == [(b"1", 1), (b"2", 1)]

    asyncio.run(scenario())


def test_a_drain_is_bounded(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            begun: list[bytes] = []

            @client.on_message("orders", "s")
            async def handle(body: bytes) -> None:
                begun.append(body)
                await asyncio.sleep(60)

            await client.publish("orders", b"0")
            serving = asyncio.create_task(client.run(drain_s=0.02))
            await until(lambda: bool(begun))
            client.stop()
            await asyncio.wait_for(serving, PATIENCE_S)
            async with client.subscribe("orders", "s") as deliveries:
                again = await deliveries.receive(timeout_s=PATIENCE_S)
                assert again is not None
                assert again.attempt == 2

    asyncio.run(scenario())
    assert "not finished in 0.02 s" in caplog.text


def test_stopping_twice_waits_for_nobody() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            begun: list[bytes] = []

            @client.on_message("orders", "s")
            async def handle(body: bytes) -> None:
                begun.append(body)
                await asyncio.sleep(60)

            await client.publish("orders", b"0")
            serving = asyncio.create_task(client.run())
            await until(lambda: bool(begun))
            client.stop()
            await asyncio.sleep(0.01)
            client.stop()
            await asyncio.wait_for(serving, PATIENCE_S)

    asyncio.run(scenario())


def test_a_cancelled_run_ends_at_once_and_hands_back() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            begun: list[bytes] = []

            @client.on_message("orders", "s")
            async def handle(body: bytes) -> None:
                begun.append(body)
                await asyncio.sleep(60)

            await client.publish("orders", b"0")
            serving = asyncio.create_task(client.run())
            await until(lambda: bool(begun))
            serving.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asyncio.wait_for(serving, PATIENCE_S)
            assert (await counts(client))["waiting"] == 1
            assert (await counts(client))["consumers"] == []

    asyncio.run(scenario())


def test_run_opens_and_closes_a_client_that_was_not_open() -> None:
    client = connect("memory:")
    got: list[bytes] = []

    @client.on_message("orders", "s")
    async def handle(body: bytes) -> None:
        got.append(body)
        client.stop()

    async def scenario() -> None:
        serving = asyncio.create_task(client.run())
        await until(lambda: client._service is not None)
        await client.publish("orders", b"x")
        await asyncio.wait_for(serving, PATIENCE_S)
        with pytest.raises(Closed):
            await client.publish("orders", b"y")

    asyncio.run(scenario())
    assert got == [b"x"]


def test_wrong_registrations_are_refused() -> None:
    client = connect("memory:")
    with pytest.raises(InvalidArgument, match="unknown subscription kind"):
        client.on_message("orders", "s", kind="queue")
    with pytest.raises(InvalidArgument, match="no setting 'colour'"):
        client.on_message("orders", "s", colour="red")

    async def scenario() -> None:
        with pytest.raises(UsageError, match="nothing to run"):
            await client.run()

        @client.on_message("orders", "s", qos=7)
        async def handle(body: bytes) -> None: ...

        with pytest.raises(Unsupported, match="qos 7"):
            await client.run()

    asyncio.run(scenario())


def test_a_client_runs_once_at_a_time_and_takes_no_handlers_meanwhile() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()

            @client.on_message("orders", "s")
            async def handle(body: bytes) -> None: ...

            serving = asyncio.create_task(client.run())
            await until(lambda: client._service is not None)
            with pytest.raises(UsageError, match="runs already"):
                await client.run()
            with pytest.raises(UsageError, match="before run"):
                client.on_message("orders", "t")(handle)
            client.stop()
            await asyncio.wait_for(serving, PATIENCE_S)

    asyncio.run(scenario())


def test_run_raises_what_ends_a_subscription() -> None:
    async def scenario() -> None:
        broker = MemoryBroker()
        client = broker.client()

        @client.on_message("orders", "s")
        async def handle(body: bytes) -> None: ...

        serving = asyncio.create_task(client.run())
        await until(lambda: broker.broker.engine.consumers)
        broker.close()
        with pytest.raises(Closed, match="broker was closed"):
            await asyncio.wait_for(serving, PATIENCE_S)

    asyncio.run(scenario())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_a_whole_program(tmp_path: Path, number: signal.Signals) -> None:
    program = textwrap.dedent(
        f"""
        import asyncio, sys, penstock
        client = penstock.connect("file:{tmp_path / "store"}")

        @client.on_message("orders", "s")
        async def handle(body: str) -> None:
            print("begin", body, flush=True)
            await asyncio.to_thread(sys.stdin.readline)  # the signal was sent before this line
            await asyncio.sleep(0.2)
            print("end", body, flush=True)

        async def main():
            await client
            await client.publish_many("orders", ["0", "1", "2"])
            await client.run()
            await client.close()
            print("closed", flush=True)
        asyncio.run(main())
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "begin 0\n"
        os.kill(process.pid, number)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.read() == "end 0\nclosed\n"
        assert process.wait(60) == 0

    async def look() -> None:
        async with (
            connect(f"file:{tmp_path / 'store'}") as client,
            client.subscribe("orders", "s") as deliveries,
        ):
            got = [await deliveries.receive(timeout_s=PATIENCE_S) for _ in range(2)]
            assert [(m.body, m.attempt) for m in got if m] == [(b"1", 1), (b"2", 1)]

    asyncio.run(look())
