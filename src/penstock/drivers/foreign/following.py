"""A consumer over a pattern on a broker that has none: topics are listed, matches are joined.

A topic that appears later is joined from its earliest message on, so nothing of it is missed.
"""

import asyncio
import logging
from asyncio import AbstractEventLoop, Task
from collections.abc import Awaitable, Callable
from typing import Any, Final

from penstock.drivers.foreign.attachment import ForeignAttachment
from penstock.drivers.foreign.office import Office
from penstock.drivers.port import Follower
from penstock.vocabulary.errors import PenstockError, Unavailable
from penstock.vocabulary.filters import matches
from penstock.vocabulary.wishes import Wish

log = logging.getLogger("penstock.drivers")

LOOK_S: Final = 1.0
"""How often new topics are looked for."""


class ForeignFollowing:
    """One consumer of a pattern."""

    def __init__(
        self, wish: Wish, follower: Follower, office: Office,
        seat: Callable[[Wish], Awaitable[ForeignAttachment]], loop: AbstractEventLoop,
        on_left: Callable[["ForeignFollowing"], object],
    ) -> None:  # fmt: skip
        self._wish = wish
        self._follower = follower
        self._office = office
        self._seat = seat
        self._loop = loop
        self._on_left = on_left
        self._joined: set[str] = set()
        self._task: Task[None] | None = None

    async def start(self) -> None:
        """Joins what matches now, and looks for more from now on.

        All places are taken before the first of them brings anything: whoever follows has them
        all, or none.
        """
        seated: dict[str, ForeignAttachment] = {}
        try:
            for topic in await self._matching():
                attachment = await self._seat_in(topic, self._wish.start)
                seated[topic] = attachment
        except BaseException:
            for attachment in seated.values():
                await attachment.lose()
            raise
        for topic, attachment in seated.items():
            self._begin(topic, attachment)
        self._task = self._loop.create_task(self._look(), name=f"follow-{self._wish.topic}")

    def leave(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._on_left(self)

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await self._join()
            except Unavailable as error:
                log.warning("pattern %s: %s", self._wish.topic, error)
            except PenstockError as error:
                self._follower.on_closed(error)
                return

    async def _join(self) -> None:
        for topic in await self._matching():
            self._begin(topic, await self._seat_in(topic, "earliest"))

    async def _matching(self) -> list[str]:
        """The topics that match and are not joined yet."""
        return [
            topic
            for topic in await self._office.topic_names()
            if topic not in self._joined and matches(self._wish.topic, topic)
        ]

    def _seat_in(self, topic: str, start: Any) -> Awaitable[ForeignAttachment]:
        return self._seat(self._wish._replace(topic=topic, start=start))

    def _begin(self, topic: str, attachment: ForeignAttachment) -> None:
        self._joined.add(topic)
        attachment.start(self._follower.on_joined(topic, attachment))
