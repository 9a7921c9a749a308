import asyncio
from typing import Any

import penstock as library
from penstock.cli.demo import failing


def test_a_failing_handler_leaves_a_dead_letter_that_comes_back() -> None:
    async def play() -> tuple[int, list[Any], int, Any, list[Any]]:
        async with library.connect("memory:") as client:
            attempts, letters = await failing.fail(client)
            count, message = await failing.redrive(client)
            left = await client.dead_letters(failing.TOPIC, failing.SUBSCRIPTION)
            return attempts, letters, count, message, left

    attempts, letters, count, message, left = asyncio.run(play())
    assert attempts == failing.ATTEMPTS
    assert [letter.id for letter in letters] == ["payment-1"]
    assert letters[0].headers["penstock-dead-reason"] == failing.REASON
    assert (count, message.id, left) == (1, "payment-1", [])
