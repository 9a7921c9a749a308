"""Dead letters of a broker that has no place for them: in a store of ours, `dead=file:DIR`.

The dead letters of a topic and a subscription lie in the topic `TOPIC.dead:SUBSCRIPTION` of that
store, each with the whole envelope in its headers. A subscription `kept` holds them until they are
removed. Several processes may use one store.
"""

import asyncio
from asyncio import Event, Future
from collections.abc import Sequence
from itertools import count
from typing import Any, Final
from uuid import uuid4

from xxhash import xxh3_128_hexdigest

from penstock.batch import encode_columns
from penstock.batch.encode import Columns
from penstock.batch.frame import Frame, Slice
from penstock.batch.view import Batch
from penstock.drivers.embedded import open_embedded
from penstock.drivers.foreign.envelope import Letter, seal, unseal
from penstock.drivers.port import Driver
from penstock.vocabulary import names
from penstock.vocabulary import requests as q
from penstock.vocabulary.claims import Claim, Refusal, Revoked
from penstock.vocabulary.credentials import without_credentials
from penstock.vocabulary.errors import (
    DeadLetterFull,
    InvalidArgument,
    StorageError,
    Unavailable,
    UnknownTopic,
)
from penstock.vocabulary.limits import CREDIT_MAX
from penstock.vocabulary.policy import Retry, SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.wishes import Wish

KEPT: Final = "kept"
MARK: Final = ".dead:"
"""In place of `.dead.`, which the store keeps for dead letters of its own."""
SCHEME: Final = "file:"
BYTES_MAX: Final = 1 << 62
PAGE: Final = 500
ANSWER_S: Final = 30.0


def check_url(url: str) -> str:
    """Returns the URL of a store. Raises InvalidArgument."""
    if not url.startswith(SCHEME) or len(url) == len(SCHEME):
        raise InvalidArgument(
            f"option 'dead' names a store, such as 'file:./dead', not {without_credentials(url)!r}"
        )
    return url


async def open_store(url: str) -> "DeadStore":
    """A store, opened or made. Raises what opening a store raises."""
    return DeadStore(await open_embedded(check_url(url), asyncio.get_running_loop()))


class DeadStore:
    """The dead letters of one client."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._publisher = uuid4().bytes
        self._sequences = count(1)
        self._ready: set[str] = set()

    async def close(self) -> None:
        """Ends the use of the store."""
        await self._driver.close()

    async def put(self, dead_topic: str, letters: Sequence[Letter], bytes_max: int) -> None:
        """Stores dead letters durably, each once. Raises DeadLetterFull."""
        topic = await self._ensure(dead_topic)
        held = (await self._driver.ask(q.DescribeTopic(topic)))["bytes"]
        if held + sum(letter.size for letter in letters) > bytes_max:
            raise DeadLetterFull(
                f"dead-letter topic {dead_topic!r} holds {held} bytes and may hold {bytes_max}: "
                "the failed messages wait; redrive or purge some dead letters"
            )
        columns = Columns(
            bodies=[letter.body or b"" for letter in letters],
            ids=[xxh3_128_hexdigest(letter.dedup.encode()) for letter in letters],
            headers=[seal(letter) for letter in letters],
        )
        answer: Future[Any] = asyncio.get_running_loop().create_future()
        self._driver.publish(
            topic, 0, encode_columns(columns), len(letters), self._publisher, next(self._sequences),
            0, answer.set_result,
        )  # fmt: skip
        self._driver.deliver()
        stored = await answer
        if isinstance(stored, Exception):
            raise StorageError(f"dead letters cannot be stored: {stored}") from stored

    async def _ensure(self, dead_topic: str) -> str:
        topic = _stored_as(dead_topic)
        if topic not in self._ready:
            await self._driver.ask(q.CreateTopic(topic, 1, TopicPolicy(retain_s=None)))
            policy = SubscriptionPolicy(retry=Retry(max_attempts=None))
            await self._driver.ask(q.CreateSubscription(topic, KEPT, policy, "earliest"))
            self._ready.add(topic)
        return topic

    async def count(self, dead_topic: str) -> int | None:
        """How many dead letters there are; None when there never were any."""
        try:
            row = await self._driver.ask(q.DescribeTopic(_stored_as(dead_topic)))
        except UnknownTopic:
            return None
        return int(row["messages"])

    async def topics(self) -> list[str]:
        """The dead-letter topics."""
        rows = await self._driver.ask(q.ListTopics())
        found = [row["topic"] for row in rows]
        return [topic.replace(MARK, names.DEAD_MARK) for topic in found if MARK in topic]

    async def look(self, dead_topic: str, limit: int) -> list[Letter]:
        """The dead letters, oldest first."""
        found: list[Letter] = []
        after = 0
        while len(found) < limit:
            rows = await self._driver.ask(
                q.Peek(_stored_as(dead_topic), min(PAGE, limit - len(found)), None, after)
            )
            page = [letter for _, frame in rows for letter in _letters(frame)]
            if not page:
                break
            found += page
            after = page[-1].token + 1
        return found[:limit]

    async def remove(self, dead_topic: str, letters: Sequence[Letter]) -> None:
        """Removes dead letters that `look` found, for good. Raises Unavailable."""
        if not letters:
            return
        taker = Taker({letter.token for letter in letters})
        wish = Wish(_stored_as(dead_topic), KEPT, None, None, CREDIT_MAX, BYTES_MAX, "remover")
        attachment = await self._driver.attach(wish, taker)
        self._driver.deliver()
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(ANSWER_S):
                await taker.ended.wait()
            attachment.ack(taker.claims)
            flushed: Future[Any] = loop.create_future()
            attachment.flush(flushed.set_result)
            await flushed
        except TimeoutError as error:
            raise Unavailable(
                f"dead letters of {dead_topic!r} are held by another process; try again"
            ) from error
        finally:
            left: Future[Any] = loop.create_future()
            attachment.detach({}, left.set_result)
            await left


class Taker:
    """The sink of a consumer that takes some messages out."""

    def __init__(self, wanted: set[int]) -> None:
        self.claims: list[Claim] = []
        self.ended = Event()
        self._wanted = wanted

    def on_slice(self, part: Slice) -> None:
        """Messages arrived."""
        for frame in part.frames:
            for offset in self._wanted.intersection(frame.offsets):
                self._wanted.discard(offset)
                self.claims.append(
                    Claim(part.lease_id, part.partition, part.attempt, ((offset, offset + 1),))
                )
        if not self._wanted:
            self.ended.set()

    def on_refused(self, refusals: list[Refusal]) -> None:
        """Somebody else removed them."""

    def on_closed(self, error: Exception) -> None:
        """Nothing more will come."""
        del error
        self.ended.set()

    def on_revoked(self, news: Revoked) -> None:
        """Never told: the subscription is shared."""


def _stored_as(dead_topic: str) -> str:
    return dead_topic.replace(names.DEAD_MARK, MARK)


def _letters(frame: Frame) -> list[Letter]:
    view = Batch(frame.batch, verify=False)
    found: list[Letter] = []
    for offset, index in zip(frame.offsets, frame.indexes, strict=True):
        headers = view.headers[index] if view.headers is not None else None
        letter = unseal(headers, view.bodies[index] or b"", id=str(offset), at=frame.published_at)
        letter.token = offset
        letter.position = str(offset)
        found.append(letter)
    return found
