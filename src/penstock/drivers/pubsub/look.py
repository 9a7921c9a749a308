"""Looking at messages that nobody is given. Pub/Sub has no such call; subscriptions do it.

A topic is looked at through a subscription that lives as long as the look, from the oldest message
the topic retains. A dead-letter topic is looked at through its keeper, the subscription that holds
its letters: what is removed is acked there, all others go back at once.
"""

from collections.abc import Sequence
from typing import Any, Final

from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.pubsub import names as ids
from penstock.drivers.pubsub.records import opened, place
from penstock.drivers.pubsub.service import Pulled, Service, moment, seconds
from penstock.drivers.pubsub.settings import DAY
from penstock.vocabulary import names
from penstock.vocabulary.errors import PenstockError, Unavailable, Unsupported

PAGE: Final = 1_000
SPARE: Final = 1_000
"""So many more than asked for are looked at, since they come in no order."""
LOOK_S: Final = 3.0
"""How long Google may take to bring the next ones."""
DEADLINE_S: Final = 60
EMPTY_MAX: Final = 2


class Looking:
    """The part of a carrier that looks and removes."""

    service: Service
    has_waiting_pulls: bool

    async def look(self, topic: str, limit: int, after: int | str | None) -> list[Letter]:
        if isinstance(after, int):
            raise Unsupported(
                "pubsub: messages have no offsets: give the position after which to look"
            )
        if names.is_dead_topic(topic):
            letters = await self._look_at_dead(topic)
        else:
            enough = limit + SPARE if after is None else None
            letters = await self._look_at(topic, enough)
        letters.sort(key=place)
        if after is not None:
            known = [letter.position for letter in letters]
            letters = letters[known.index(after) + 1 :] if after in known else []
        return letters[:limit]

    async def _look_at(self, topic: str, enough: int | None) -> list[Letter]:
        path = self.service.subscription(ids.passing_id("look"))
        await self.service.call(
            "CreateSubscription", name=path, topic=self.service.topic(ids.topic_id(topic)),
            ack_deadline_seconds=DEADLINE_S, expiration_policy={"ttl": seconds(DAY)},
        )  # fmt: skip
        try:
            await self.service.call("Seek", subscription=path, time=moment(1.0))
            return [_letter(each) for each in await self._drain(path, enough)]
        finally:
            await self.service.call("DeleteSubscription", subscription=path)

    async def _look_at_dead(self, topic: str) -> list[Letter]:
        path = self.service.subscription(ids.keeper_id(topic))
        pulled = await self._drain(path, None)
        await self.service.set_deadline(path, [each.ack_id for each in pulled], 0)
        return [_letter(each) for each in pulled]

    async def remove(self, topic: str, letters: Sequence[Letter]) -> None:
        """Letters of a dead-letter topic: they are taken once more, and acked."""
        path = self.service.subscription(ids.keeper_id(topic))
        wanted = {letter.position for letter in letters}
        pulled = await self._drain(path, None, wanted)
        gone = [each.ack_id for each in pulled if each.message_id in wanted]
        rest = [each.ack_id for each in pulled if each.message_id not in wanted]
        failed = await self.service.acknowledge(path, gone)
        await self.service.set_deadline(path, rest, 0)
        left = len(wanted) - len(gone) + len(failed)
        if left:
            raise Unavailable(
                f"topic {topic!r}: {left} letters are in other hands just now; "
                "try again in a minute"
            )

    async def _drain(
        self, path: str, enough: int | None, wanted: set[str] | None = None
    ) -> list[Pulled]:
        """What a subscription can give; all of it, or until there is enough."""
        found: dict[str, Pulled] = {}
        empty = 0
        is_waiting = self.has_waiting_pulls
        while empty < EMPTY_MAX and (enough is None or len(found) < enough):
            if wanted is not None and wanted <= found.keys():
                break
            try:
                page = await self.service.pull(path, PAGE, LOOK_S, is_waiting=is_waiting)
            except PenstockError:
                await self._put_back(path, found)
                raise
            empty = 0 if page else empty + 1
            found |= {each.message_id: each for each in page}
        return list(found.values())

    async def _put_back(self, path: str, found: dict[str, Any]) -> None:
        try:
            await self.service.set_deadline(path, [each.ack_id for each in found.values()], 0)
        except PenstockError:
            return  # they come back when their time is over


def _letter(pulled: Pulled) -> Letter:
    return opened(pulled.message_id, pulled.data, pulled.attributes, pulled.published_ns)
