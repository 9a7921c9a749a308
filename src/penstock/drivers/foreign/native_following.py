"""A consumer over a pattern on a broker that has patterns: one feed, shared out by topic.

A topic joins with its first message. What each topic's desk decides goes to the one feed again.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop, Event, Task
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from penstock.drivers.foreign.attachment import ForeignAttachment
from penstock.drivers.foreign.carrier import Feed, Refused, Release, Seat
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.port import Follower
from penstock.vocabulary.errors import PenstockError, Unavailable
from penstock.vocabulary.wishes import Wish

log = logging.getLogger("penstock.drivers")

FETCH_S: Final = 1.0
PAUSE_S_FIRST: Final = 0.05
PAUSE_S_MAX: Final = 1.0
WAITING_MAX: Final = 1_000
"""Letters that wait for their topics' desks; more stay with the broker."""


class NativeFollowing:
    """One consumer of a pattern."""

    def __init__(
        self, wish: Wish, seat: Seat, feed: Feed, follower: Follower,
        seated: Callable[[Wish, Seat, Feed], ForeignAttachment], loop: AbstractEventLoop,
    ) -> None:  # fmt: skip
        self._wish = wish
        self._seat = seat
        self.feed = feed
        self._follower = follower
        self._seated = seated
        self._loop = loop
        self._topics: dict[str, TopicFeed] = {}
        self._waiting = 0
        self._has_room = Event()
        self._task: Task[None] | None = None
        self._ending: Task[None] | None = None
        self._has_left = False

    def start(self) -> None:
        """Topics join from now on."""
        name = f"penstock-follow-{self._wish.topic}"
        self._task = self._loop.create_task(self._share_out(), name=name)

    def leave(self) -> None:
        if self._has_left:
            return
        self._has_left = True
        if self._task is not None:
            self._task.cancel()
        if not self._topics:
            self._ending = self._loop.create_task(self.feed.close())

    @property
    def is_over(self) -> bool:
        """True when it was left and its feed is closed."""
        is_closing = self._ending is not None and not self._ending.done()
        return self._has_left and not self._topics and not is_closing

    async def until_over(self) -> None:
        """Returns when the feed of one that was left before any topic joined is closed."""
        if self._ending is not None:
            await asyncio.wait([self._ending])

    async def _share_out(self) -> None:
        pause = PAUSE_S_FIRST
        while True:
            while self._waiting >= WAITING_MAX:
                self._has_room.clear()
                await self._has_room.wait()
            try:
                letters = await self.feed.fetch(WAITING_MAX, self._wish.credit_bytes)
            except Unavailable as error:
                log.warning("pattern %s: %s", self._wish.topic, error)
                await asyncio.sleep(pause)
                pause = min(2 * pause, PAUSE_S_MAX)
                continue
            except PenstockError as error:
                self._follower.on_closed(error)
                return
            pause = PAUSE_S_FIRST
            for letter in letters:
                self._put(letter)

    def _put(self, letter: Letter) -> None:
        topic = letter.token.topic
        part = self._topics.get(topic)
        if part is None:
            part = self._topics[topic] = TopicFeed(self, topic)
            seat = self._seat._replace(topic=topic)
            attachment = self._seated(self._wish._replace(topic=topic), seat, part)
            attachment.start(self._follower.on_joined(topic, attachment))
        self._waiting += 1
        part.put(letter)

    def taken(self, count: int) -> None:
        """So many letters went to their desks."""
        self._waiting -= count
        self._has_room.set()

    async def ended(self, topic: str) -> None:
        """A topic's consumer is closed; the last one closes the feed."""
        self._topics.pop(topic, None)
        if self._has_left and not self._topics:
            await self.feed.close()


class TopicFeed:
    """One topic's part of the feed."""

    def __init__(self, whole: NativeFollowing, topic: str) -> None:
        self._whole = whole
        self._topic = topic
        self._arrived: deque[Letter] = deque()
        self._has_some = Event()

    def put(self, letter: Letter) -> None:
        """A letter of this topic arrived."""
        self._arrived.append(letter)
        self._has_some.set()

    async def fetch(self, count: int, bytes_max: int) -> list[Letter]:
        if not self._arrived:
            self._has_some.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(FETCH_S):
                    await self._has_some.wait()
        found: list[Letter] = []
        size = 0
        while self._arrived and len(found) < count and (not found or size < bytes_max):
            found.append(self._arrived.popleft())
            size += found[-1].size
        if found:
            self._whole.taken(len(found))
        return found

    async def settle(self, letters: Sequence[Letter]) -> list[Refused]:
        return await self._whole.feed.settle(letters)

    async def release(self, releases: Sequence[Release]) -> list[Refused]:
        return await self._whole.feed.release(releases)

    async def renew(self, letters: Sequence[Letter]) -> None:
        await self._whole.feed.renew(letters)

    async def bury(self, dead_topic: str, letters: Sequence[Letter]) -> list[Refused]:
        return await self._whole.feed.bury(dead_topic, letters)

    async def close(self) -> None:
        await self._whole.ended(self._topic)
