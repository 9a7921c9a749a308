"""Questions: which are asked again, and what a repeated one means."""

import asyncio
from typing import Any

import pytest

from penstock.drivers.remote.asking import Question, is_repeatable, unknown_outcome
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import Unavailable, UnknownSubscription, UnknownTopic

WHICH = q.Filter()


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (q.ListTopics(), True),
        (q.DeleteTopic("t"), True),
        (q.Redrive("t", "s", WHICH, None, is_dry=False), False),
        (q.Redrive("t", "s", WHICH, None, is_dry=True), True),
        (q.PurgeDead("t", "s", WHICH, None, is_dry=False), False),
        (q.PlanRanges("t", "r", "o", None, None, None), False),
        (q.PlanRanges("t", "r", "o", None, None, {0: 5}), True),
        (q.CommitReader("t", "r", "o", {0: 5}), True),
    ],
)
def test_what_may_be_asked_twice(request_: Any, expected: bool) -> None:
    assert is_repeatable(request_) is expected
    if not expected:
        error = unknown_outcome(request_)
        assert isinstance(error, Unavailable)
        assert "not known" in error.text


@pytest.mark.parametrize(
    ("request_", "error", "is_done"),
    [
        (q.DeleteTopic("t"), UnknownTopic("gone"), True),
        (q.DeleteSubscription("t", "s"), UnknownSubscription("gone"), True),
        (q.ReleaseReader("t", "r", "o", is_forced=True), UnknownSubscription("gone"), True),
        (q.DescribeTopic("t"), UnknownTopic("gone"), False),
    ],
)
def test_a_repeated_question_that_was_done_is_answered(
    request_: Any, error: Any, is_done: bool
) -> None:
    async def scenario(times: int) -> Any:
        question = Question(request_, asyncio.get_running_loop())
        question.times = times
        question.on_error(error)
        return await question.future

    with pytest.raises(type(error)):
        asyncio.run(scenario(1))
    if is_done:
        assert asyncio.run(scenario(2)) is None
    else:
        with pytest.raises(type(error)):
            asyncio.run(scenario(2))


def test_an_answer_for_somebody_who_is_gone_is_harmless() -> None:
    async def scenario() -> None:
        question = Question(q.ListTopics(), asyncio.get_running_loop())
        question.future.cancel()
        question.on_error(UnknownTopic("t"))
        assert question.on_answer(0, memoryview(b"\x90"))

    asyncio.run(scenario())
