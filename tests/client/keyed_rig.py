"""What tests of kind `key_shared` share: messages by key, and a witness of their order."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.client.client import Client
from penstock.client.received import ReceivedMessage
from penstock.vocabulary.message import Message
from penstock.vocabulary.policy import Retry

PATIENCE_S = 30.0
KEYED: dict[str, Any] = {
    "kind": "key_shared", "retry": Retry(first_s=0, max_s=0, max_attempts=None),
}  # fmt: skip


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(scenario(), 2 * PATIENCE_S)

    asyncio.run(limited())


def messages(text: str) -> list[Message]:
    """`a1 b1 .1`: keys and numbers; `.` = without a key."""
    return [Message(body=w, key=None if w[0] == "." else w[0]) for w in text.split()]


async def until(condition: Any) -> None:
    ends = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        await asyncio.sleep(0.002)


async def next_of(deliveries: Any) -> tuple[str, ReceivedMessage]:
    message = await deliveries.receive(timeout_s=PATIENCE_S)
    assert message is not None
    return message.body.decode(), message


async def acked(client: Client) -> int:
    return int((await client.subscriptions("t"))[0]["acked"])


class Witness:
    """Sees what is handed out, and knows what must not be."""

    def __init__(self) -> None:
        self.last: dict[str, int] = defaultdict(int)
        """Key → number of its newest message that was handed out."""
        self.nacked: dict[str, set[int]] = defaultdict(set)
        self.running: set[str] = set()
        self.faults: list[str] = []
        self.handed_out = 0

    def handed(self, body: str) -> None:
        key, number = body[0], int(body[1:])
        self.handed_out += 1
        if key == ".":
            return
        if number > self.last[key] + 1:
            self.faults.append(f"{body} came before {key}{self.last[key] + 1}")
        self.last[key] = max(self.last[key], number)
        if any(each < number for each in self.nacked[key]):
            self.faults.append(f"{body} came before {sorted(self.nacked[key])} came again")
        self.nacked[key].discard(number)

    def begin(self, body: str) -> None:
        self.handed(body)
        if body[0] in self.running:
            self.faults.append(f"{body} ran beside another of its key")
        if body[0] != ".":
            self.running.add(body[0])

    def end(self, body: str, *, is_nacked: bool) -> None:
        self.running.discard(body[0])
        if is_nacked:
            self.nacked[body[0]].add(int(body[1:]))


class Plan:
    """Which messages there are, and how often each is nacked."""

    def __init__(self, keys: str, nacks: list[int]) -> None:
        numbers: dict[str, int] = defaultdict(int)
        self.words: list[str] = []
        self.left: dict[str, int] = {}
        for at, key in enumerate(keys):
            numbers[key] += 1
            word = f"{key}{numbers[key]}"
            self.words.append(word)
            self.left[word] = nacks[at % len(nacks)]

    def is_nacked(self, body: str) -> bool:
        self.left[body] -= 1
        return self.left[body] >= 0

    async def publish(self, client: Client, size: int) -> None:
        for low in range(0, len(self.words), size):
            await client.publish_many("t", messages(" ".join(self.words[low : low + size])))
            await asyncio.sleep(0)

    async def finished(self, client: Client, witness: Witness) -> None:
        ends = time.monotonic() + PATIENCE_S
        while time.monotonic() < ends:
            if await acked(client) == len(self.words) or witness.faults:
                return
            await asyncio.sleep(0.002)
        pytest.fail(f"stuck: {(await client.subscriptions('t'))[0]}")
