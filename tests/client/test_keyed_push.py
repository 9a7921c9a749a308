"""Kind `key_shared` in push: one message of a key at a time, other keys meanwhile."""

import asyncio
import threading
import time
from collections import defaultdict

import pytest

from penstock.client.client import Client
from penstock.client.received import ReceivedMessage
from penstock.testing import MemoryBroker
from penstock.vocabulary.message import Nack
from tests.client.keyed_rig import KEYED, PATIENCE_S, acked, messages, next_of, run, until


class Served:
    """A running client; `async with` stops it again."""

    def __init__(self, client: Client) -> None:
        self.client = client

    async def __aenter__(self) -> None:
        self.running = asyncio.create_task(self.client.run(drain_s=PATIENCE_S))

    async def __aexit__(self, *_: object) -> None:
        self.client.stop()
        await asyncio.wait_for(self.running, PATIENCE_S)


def test_push_runs_one_message_of_a_key_at_a_time_and_other_keys_meanwhile() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            gates: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
            begun: list[str] = []

            @client.on_message("t", "s", concurrency=3, credit=100, **KEYED)
            async def handle(body: str) -> None:
                begun.append(body)
                await gates[body].wait()

            await client.publish_many("t", messages("a1 a2 a3 a4 b1 .1 .2 b2"))
            async with Served(client):
                await until(lambda: len(begun) == 3)
                assert begun == ["a1", "b1", ".1"], "a busy key does not hold up others"
                gates["b1"].set()
                await until(lambda: len(begun) == 4)
                assert begun[3:] == [".2"], "the oldest that may run comes first"
                gates["a1"].set()
                await until(lambda: len(begun) == 5)
                assert begun[4:] == ["a2"]
                for each in ("a2", "a3", "a4", ".1", ".2", "b2"):
                    gates[each].set()
                await until(lambda: len(begun) == 8)
            assert await acked(client) == 8

    run(scenario)


@pytest.mark.parametrize("how", ["raise", "return", "call", "time out"])
def test_push_drops_what_waits_behind_a_failed_message(how: str) -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            begun: list[tuple[str, int]] = []

            @client.on_message("t", "s", concurrency=4, credit=100, handler_timeout_s=0.05, **KEYED)
            async def handle(body: str, message: ReceivedMessage) -> Nack | None:
                begun.append((body, message.attempt))
                if body != "a1" or message.attempt > 1:
                    return None
                match how:
                    case "raise":
                        raise ValueError("broken")
                    case "return":
                        return Nack()
                    case "call":
                        message.nack()
                    case _:
                        await asyncio.sleep(60)
                return None

            await client.publish_many("t", messages("a1 a2 b1 a3"))
            async with Served(client):
                await until(lambda: len(begun) == 5)
            line = [each for each in begun if each[0][0] == "a"]
            assert line == [("a1", 1), ("a1", 2), ("a2", 1), ("a3", 1)]
            assert await acked(client) == 4

    run(scenario)


def test_push_in_threads_keeps_a_key_busy_until_the_thread_is_done() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            running: list[str] = []
            twice: list[str] = []
            ended: list[str] = []
            guard = threading.Lock()

            @client.on_message("t", "s", concurrency=4, credit=100, handler_timeout_s=4, **KEYED)
            def handle(body: str, message: ReceivedMessage) -> None:
                with guard:
                    if body[0] in running:
                        twice.append(body)
                    running.append(body[0])
                if body == "a1" and message.attempt == 1:
                    ends = time.monotonic() + PATIENCE_S
                    while not message.is_settled and time.monotonic() < ends:
                        time.sleep(0.02)  # nacked after 4 s, while this still runs
                    time.sleep(0.5)
                with guard:
                    running.remove(body[0])
                    ended.append(body)

            await client.publish_many("t", messages("a1 a2 b1 b2"))
            async with Served(client):
                await until(lambda: len(ended) == 5)
            assert not twice
            assert [body for body in ended if body[0] == "a"] == ["a1", "a1", "a2"]

    run(scenario)


def test_a_drain_hands_back_what_was_held_back_without_an_attempt() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            begun: list[str] = []
            gate = asyncio.Event()

            @client.on_message("t", "s", concurrency=3, credit=100, **KEYED)
            async def handle(body: str) -> None:
                begun.append(body)
                await gate.wait()

            await client.publish_many("t", messages("a1 a2 b1 a3"))
            async with Served(client):
                await until(lambda: len(begun) == 2)
                client.stop()
                await asyncio.sleep(0.02)
                gate.set()
            assert begun == ["a1", "b1"]
            async with client.subscribe("t", "s", **KEYED) as deliveries:
                got = [await next_of(deliveries) for _ in range(2)]
                assert [(b, m.attempt) for b, m in got] == [("a2", 1), ("a3", 1)]

    run(scenario)


def test_what_push_holds_back_keeps_its_lease() -> None:
    async def scenario() -> None:
        with MemoryBroker() as broker:
            client = broker.client()
            begun: list[tuple[str, int]] = []
            gate = asyncio.Event()

            @client.on_message("t", "s", concurrency=2, credit=100, lease_s=10, **KEYED)
            async def handle(body: str, message: ReceivedMessage) -> None:
                begun.append((body, message.attempt))
                await gate.wait()

            await client.publish_many("t", messages("a1 a2"))
            async with Served(client):
                await until(lambda: len(begun) == 1)
                broker.advance(60)
                gate.set()
                await until(lambda: len(begun) == 2)
            assert begun == [("a1", 1), ("a2", 1)]
            assert await acked(client) == 2

    run(scenario)
