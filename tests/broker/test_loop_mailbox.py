"""Letters reach one loop, in order, with one wake-up; a dead loop is noticed."""

import asyncio
from threading import Thread
from typing import Any

import pytest

from penstock.broker.loop_mailbox import LoopMailbox


def test_letters_from_another_thread_arrive_in_order() -> None:
    async def scenario() -> None:
        got: list[int] = []
        mailbox = LoopMailbox(asyncio.get_running_loop(), pytest.fail)
        done = asyncio.get_running_loop().create_future()

        def post() -> None:
            mailbox.post([(got.append, 1), (got.append, 2)])
            mailbox.post([(got.append, 3), (done.set_result, None)])

        thread = Thread(target=post)
        thread.start()
        await asyncio.wait_for(done, 30)
        thread.join()
        assert got == [1, 2, 3]

    asyncio.run(scenario())


def test_letters_posted_together_wake_the_loop_once() -> None:
    class CountingLoop:
        calls = 0

        def call_soon_threadsafe(self, _function: Any) -> None:
            self.calls += 1

    loop: Any = CountingLoop()
    mailbox = LoopMailbox(loop, pytest.fail)
    got: list[int] = []
    mailbox.post([(got.append, 1)])
    mailbox.post([(got.append, 2)])
    assert loop.calls == 1
    mailbox.deliver()
    assert got == [1, 2]
    mailbox.post([(got.append, 3)])
    assert loop.calls == 2


def test_an_answer_nobody_waits_for_any_more_is_dropped() -> None:
    async def scenario() -> None:
        mailbox = LoopMailbox(asyncio.get_running_loop(), pytest.fail)
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        got: list[int] = []
        mailbox.post([(cancelled.set_result, 1), (got.append, 2)])
        mailbox.deliver()
        assert got == [2]

    asyncio.run(scenario())


def test_a_target_that_fails_does_not_hold_up_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        mailbox = LoopMailbox(asyncio.get_running_loop(), pytest.fail)
        got: list[int] = []

        def broken(_answer: Any) -> None:
            raise ValueError("a defect")

        mailbox.post([(broken, 1), (got.append, 2)])
        mailbox.deliver()
        assert got == [2]

    asyncio.run(scenario())
    assert "a defect" in caplog.text


def test_a_closed_loop_is_reported_once_for_each_post() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    dead: list[bool] = []
    mailbox = LoopMailbox(loop, lambda: dead.append(True))
    mailbox.post([(print, 1)])
    assert dead == [True]
