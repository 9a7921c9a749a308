"""Committing a unit on a foreign broker that can: publishes and acks, all or nothing."""

import asyncio
from asyncio import AbstractEventLoop, Task
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol

from penstock.drivers.foreign.attachment import ForeignAttachment
from penstock.drivers.foreign.carrier import Feed, LevelCarrier, Placed
from penstock.drivers.foreign.envelope import Letter, letters_of
from penstock.drivers.foreign.lanes import stored_of
from penstock.drivers.port import Answer
from penstock.vocabulary.claims import Claim, Refusal
from penstock.vocabulary.errors import AckRefused, PenstockError, Unavailable, Unconfirmed
from penstock.vocabulary.message import Durability
from penstock.vocabulary.units import UnitWish

PAUSE_S_FIRST: Final = 0.05
PAUSE_S_MAX: Final = 1.0

Acks = list[tuple[ForeignAttachment, list[Claim]]]


class UnitCarrier(Protocol):
    """The rest of a carrier whose capabilities say `has_transactions`."""

    async def commit(
        self, wish: UnitWish, parts: list[list[Letter]], acks: list[tuple[Feed, list[Letter]]]
    ) -> list[list[Placed]]:
        """Stores the letters of each part and finishes deliveries, all or nothing.

        A repeated call with the same wish is answered as the first. Raises AckRefused, whose
        `refused` has (index of the ack, index of the letter, why); Unavailable: it may have
        happened, and the same call is repeated.
        """
        ...


class Units:
    """The units of one client that are under way."""

    def __init__(
        self, carrier: UnitCarrier, level: Callable[[], Durability], loop: AbstractEventLoop,
        patience_s: float, ensure_topic: Callable[[str], Awaitable[None]],
    ) -> None:  # fmt: skip
        self._carrier = carrier
        self._level = level
        self._loop = loop
        self._patience_s = patience_s
        self._ensure_topic = ensure_topic
        self._tasks: set[Task[None]] = set()

    def commit(self, wish: UnitWish, acks: Acks, answer: Answer) -> None:
        """Commits; answers a Stored for each part. Raises AckRefused: nothing of it happened."""
        meant: list[list[Letter]] = []
        for attachment, claims in acks:
            letters, refusals = attachment.desk.meant(claims)
            if refusals:
                raise _refused(attachment, refusals)
            meant.append(letters)
        task = self._loop.create_task(self._run(wish, acks, meant, answer), name="penstock-unit")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Gives up what is under way."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _run(
        self, wish: UnitWish, acks: Acks, meant: list[list[Letter]], answer: Answer
    ) -> None:
        parts = [
            letters_of(part.batch, wish.publisher, part.epoch, part.sequence) for part in wish.parts
        ]
        feeds = [
            (attachment.feed, letters) for (attachment, _), letters in zip(acks, meant, strict=True)
        ]
        found: Any = Unconfirmed("the client was closed before the broker answered")
        try:
            placed = await self._try(wish, parts, feeds)
            found = [
                stored_of(letters, places, self._level_of(part.topic))
                for part, letters, places in zip(wish.parts, parts, placed, strict=True)
            ]
            for attachment, claims in acks:
                attachment.finish(claims)
        except AckRefused as error:
            at, _, _ = error.details["refused"][0]
            refusals = [
                Refusal(0, -1, f"{meant[ack][letter].position}: {why}")
                for ack, letter, why in error.details["refused"]
            ]
            found = _refused(acks[at][0], refusals)
        except PenstockError as error:
            found = error
        finally:
            answer(found)

    def _level_of(self, topic: str) -> Durability:
        carrier = self._carrier
        return carrier.level_of(topic) if isinstance(carrier, LevelCarrier) else self._level()

    async def _try(
        self, wish: UnitWish, parts: list[list[Letter]], feeds: list[tuple[Feed, list[Letter]]]
    ) -> list[list[Placed]]:
        deadline = self._loop.time() + self._patience_s
        pause = PAUSE_S_FIRST
        while True:
            try:
                for part in wish.parts:
                    await self._ensure_topic(part.topic)
                return await self._carrier.commit(wish, parts, feeds)
            except Unconfirmed:
                raise
            except Unavailable as error:
                if self._loop.time() + pause > deadline:
                    raise Unconfirmed(
                        f"the broker did not confirm the unit in {self._patience_s:g} s: it may "
                        f"have been committed or not: {error}"
                    ) from error
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_S_MAX)


def _refused(attachment: ForeignAttachment, refusals: list[Refusal]) -> AckRefused:
    topic = attachment.desk.topic
    listed = [(topic, each.partition, each.offset, each.why) for each in refusals]
    return AckRefused(
        f"the unit came to nothing: {len(listed)} of its messages of topic {topic!r} are not held "
        f"any more, such as {refusals[0].why}",
        refused=listed,
    )
