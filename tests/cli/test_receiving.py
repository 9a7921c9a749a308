import asyncio
from typing import Any

import pytest

from penstock.cli.receiving import receive


class Deliveries:
    def __init__(self, messages: list[Any]) -> None:
        self._messages = messages
        self.waits: list[float] = []

    async def receive(self, timeout_s: float) -> Any:
        self.waits.append(timeout_s)
        return self._messages.pop(0) if self._messages else None


def run(messages: list[Any], **settings: Any) -> tuple[int, list[str]]:
    story: list[str] = []
    count = asyncio.run(
        receive(
            Deliveries(messages),
            lambda m: story.append(f"show {m}"),
            lambda m: story.append(f"settle {m}"),
            **settings,
        )
    )
    return count, story


def test_a_message_is_settled_after_it_was_shown() -> None:
    assert run([1, 2], count=None, timeout_s=0.1) == (
        2,
        ["show 1", "settle 1", "show 2", "settle 2"],
    )


def test_it_ends_after_enough_messages() -> None:
    assert run([1, 2, 3], count=2, timeout_s=None)[0] == 2


def test_it_ends_when_nothing_comes() -> None:
    assert run([], count=5, timeout_s=0.1) == (0, [])


def test_without_a_timeout_it_waits_on() -> None:
    assert run([None, None, 1], count=1, timeout_s=None)[0] == 1


def test_what_could_not_be_shown_is_not_settled() -> None:
    settled: list[Any] = []

    def show(_message: Any) -> None:
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        asyncio.run(receive(Deliveries([1]), show, settled.append, count=1, timeout_s=None))
    assert settled == []
