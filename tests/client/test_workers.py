"""Plain functions run in a bounded number of threads and answer on the loop."""

import asyncio
import contextvars
import threading
import time

import pytest

from penstock.client.workers import Workers

name: contextvars.ContextVar[str] = contextvars.ContextVar("name")


def test_a_call_answers_what_the_function_returns_or_raises() -> None:
    async def scenario() -> None:
        workers = Workers(asyncio.get_running_loop(), 2, "worker")
        assert await workers.call(lambda a, b: a + b, 1, 2) == 3

        def fail() -> None:
            raise KeyError("x")

        def leave() -> None:
            raise SystemExit(3)

        with pytest.raises(KeyError):
            await workers.call(fail)
        with pytest.raises(RuntimeError, match="SystemExit"):
            await workers.call(leave)
        workers.close()

    asyncio.run(scenario())


def test_there_are_never_more_threads_than_asked_for() -> None:
    async def scenario() -> None:
        workers = Workers(asyncio.get_running_loop(), 3, "bounded")
        running: list[int] = []
        peak: list[int] = []
        guard = threading.Lock()

        def work() -> str:
            with guard:
                running.append(1)
                peak.append(len(running))
            time.sleep(0.005)
            with guard:
                running.pop()
            return threading.current_thread().name

        names = await asyncio.gather(*(workers.call(work) for _ in range(12)))
        assert max(peak) <= 3
        assert set(names) <= {"bounded-0", "bounded-1", "bounded-2"}
        workers.close()

    asyncio.run(scenario())


def test_threads_are_started_only_when_needed() -> None:
    async def scenario() -> None:
        workers = Workers(asyncio.get_running_loop(), 5, "lazy")
        for _ in range(4):
            await workers.call(int)
        assert len(workers._threads) == 1
        workers.close()

    asyncio.run(scenario())


def test_a_call_sees_the_context_of_its_caller() -> None:
    async def scenario() -> None:
        workers = Workers(asyncio.get_running_loop(), 1, "context")
        name.set("here")
        assert await workers.call(name.get) == "here"
        workers.close()

    asyncio.run(scenario())


def test_a_cancelled_call_and_a_closed_loop_are_borne() -> None:
    release = threading.Event()

    async def scenario() -> threading.Thread:
        workers = Workers(asyncio.get_running_loop(), 1, "cancelled")
        first = workers.call(release.wait, 0.01)
        first.cancel()
        await asyncio.sleep(0.03)
        workers.call(release.wait, 5)
        workers.close()
        return workers._threads[0]

    thread = asyncio.run(scenario())
    release.set()
    thread.join(5)
    assert not thread.is_alive()
