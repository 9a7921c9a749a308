"""Commits on the loop: when they are made, when they are left to the thread, and what they do."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.batch import encode_many, encode_one
from penstock.broker import inline, threads
from penstock.broker.broker import Broker
from penstock.broker.inline import ROW, Inline
from penstock.broker.loop_mailbox import LoopMailbox
from penstock.journal.memory import MemoryDisk

PUBLISHER = bytes(16)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """However busy the machine is, its disk counts as quick; the thread sleeps until it is rung."""
    monkeypatch.setattr(inline, "SLOW_S", 600.0)
    monkeypatch.setattr(threads, "IDLE_MARK_S", 600.0)


class Bench:
    """A broker with threads whose loop may commit."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.loop = asyncio.get_running_loop()
        self.mailbox = LoopMailbox(self.loop, lambda: None)
        self.inline = Inline(broker.engine, self.loop)
        self.inline.mailboxes.append(self.mailbox)
        self.sequence = 0

    def send(self, count: int = 1) -> "asyncio.Future[Any]":
        """Publishes a batch of so many messages."""
        answer: asyncio.Future[Any] = self.loop.create_future()
        batch = encode_one(b"x") if count == 1 else encode_many([b"x"] * count)
        self.broker.publish(
            "t", 0, batch, count, PUBLISHER, 0, self.sequence, self.mailbox, answer.set_result
        )
        self.sequence += count
        return answer

    def _wait_for_thread(self) -> None:
        with self.broker.engine.committing:
            pass

    async def one_by_one(self, count: int) -> None:
        """Publishes alone: the thread has answered, and has let go, before the next one."""
        for _ in range(count):
            await self.loop.run_in_executor(None, self._wait_for_thread)
            stored = await asyncio.wait_for(self.send(), 30)
            assert not isinstance(stored, Exception)
            assert stored.base == self.sequence - 1


def run(scenario: Callable[[Bench], Awaitable[None]]) -> None:
    broker = Broker.open(MemoryDisk())

    async def whole() -> None:
        bench = Bench(broker)
        try:
            await scenario(bench)
        finally:
            bench.inline.stop()

    try:
        asyncio.run(whole())
    finally:
        broker.close()


def test_after_a_row_of_lone_messages_the_loop_commits() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.one_by_one(ROW // 2)
        assert bench.inline.commits == 0
        await bench.one_by_one(ROW // 2 + 20)
        assert bench.inline.commits >= 10

    run(scenario)


def test_messages_of_one_round_are_committed_together_by_the_thread() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.one_by_one(ROW + 5)
        before = bench.inline.commits
        for _ in range(5):
            await asyncio.gather(*(bench.send() for _ in range(10)))
        assert bench.inline.commits == before
        assert bench.broker.state.names["t"].partitions[0].next_offset == ROW + 5 + 50

    run(scenario)


def test_a_batch_of_many_is_left_to_the_thread() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.one_by_one(ROW + 5)
        before = bench.inline.commits
        for _ in range(5):
            await asyncio.wait_for(bench.send(100), 30)
        assert bench.inline.commits == before

    run(scenario)


def test_a_slow_disk_is_left_to_the_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "SLOW_S", 0.0)
    monkeypatch.setattr(inline, "REST", 1e12)

    async def scenario(bench: Bench) -> None:
        await bench.one_by_one(ROW * 3)
        assert bench.inline.commits == 1

    run(scenario)


def test_what_other_threads_submit_is_for_the_thread() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.one_by_one(ROW + 5)
        before = bench.inline.commits
        await bench.loop.run_in_executor(None, bench.broker.engine.call, None)
        for _ in range(5):
            done = bench.loop.create_future()

            def publish(target: Any = done.set_result) -> None:
                batch = encode_one(b"x")
                bench.broker.publish(
                    "t", 0, batch, 1, PUBLISHER, 0, bench.sequence, bench.mailbox, target
                )
                bench.sequence += 1

            await bench.loop.run_in_executor(None, publish)
            await asyncio.wait_for(done, 30)
        assert bench.inline.commits == before

    run(scenario)


def test_one_that_speaks_alone_is_answered_before_its_round_is_over() -> None:
    async def scenario(bench: Bench) -> None:
        await bench.one_by_one(ROW + 5)
        for _ in range(ROW + 2):
            bench.inline.heard("the only one")
        for _ in range(50):  # the thread may be at work just now
            answer = bench.send()
            bench.inline.heard("the only one")
            is_answered = answer.done()
            await asyncio.wait_for(answer, 30)
            if is_answered:
                break
        assert is_answered
        later = bench.send()
        bench.inline.heard("somebody else")
        assert not later.done()
        await asyncio.wait_for(later, 30)

    run(scenario)


def test_a_store_that_fails_tells_whoever_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(bench: Bench) -> None:
        await bench.one_by_one(ROW + 5)
        file: Any = bench.broker.journal.active.file  # type: ignore[union-attr]

        def fail(*_: Any) -> None:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr(file, "pwrite_synced", fail, raising=True)
        answer = await asyncio.wait_for(bench.send(), 30)
        assert answer.code == "store-failed"

    run(scenario)
