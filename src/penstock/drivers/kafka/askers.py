"""What groups have committed: asked, and written, by consumers that never join them.

Not by the library's administrator: it brings the whole process down when a coordinator says that it
is not the one (librdkafka issue 5040), which every new or restarted cluster says for a moment, and
when the connection to one breaks (issue 4605).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from penstock.drivers.kafka.link import STALE, Consumer, KafkaException, Link, sdk_log
from penstock.drivers.kafka.settings import consumer_config
from penstock.vocabulary.errors import Unavailable

ASKERS_MAX: Final = 16
ASK_S: Final = 5.0
AWAY_S_MAX: Final = 45.0
PAUSE_S: Final = 0.2

T = TypeVar("T")
Key = tuple[str, bool]


class Askers:
    """The newest askers of a client, by group; each has connections of its own."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._kept: OrderedDict[Key, Any] = OrderedDict()

    async def committed(
        self, group: str, places: Sequence[Any], *, is_stable: bool = False
    ) -> list[Any]:
        """The places with offset and metadata, or each with its error.

        `is_stable`: a transaction under way on a place is an error of that place, after a while.
        A coordinator that is away is waited for. Raises Unavailable.
        """

        def ask(asker: Any) -> list[Any]:
            found: list[Any] = asker.committed(list(places), timeout=ASK_S)
            return found

        return await self._answered((group, is_stable), ask)

    async def commit(self, group: str, places: Sequence[Any]) -> bool:
        """Commits for a group; False when it has consumers: Kafka takes commits from them alone.

        A coordinator that is away is waited for. Raises Unavailable.
        """

        def tell(asker: Any) -> bool:
            try:
                told = asker.commit(offsets=list(places), asynchronous=False)
            except KafkaException as error:
                if error.args[0].code() in STALE:
                    return False
                raise
            return not any(each.error for each in told)

        return await self._answered((group, False), tell)

    async def _answered(self, key: Key, call: Callable[[Any], T]) -> T:
        """Has an asker call until there is an answer."""
        until = self._link.loop.time() + AWAY_S_MAX
        while True:
            try:
                return await self._ask(key, call)
            except Unavailable:
                if self._link.loop.time() > until:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def close(self) -> None:
        """Ends them all."""
        kept, self._kept = self._kept, OrderedDict()
        for asker in kept.values():
            await self._end(asker)

    async def _ask(self, key: Key, call: Callable[[Any], T]) -> T:
        """One question. An asker that got no answer is not asked again: a new one finds more."""
        asker = self._kept.pop(key, None)  # nobody else's meanwhile
        if asker is None:
            asker = await self._link.run(self._make, *key)
        try:
            found: T = await self._link.run(call, asker)
        except BaseException:
            await self._end(asker)
            raise
        former, self._kept[key] = self._kept.get(key), asker
        if former is None and len(self._kept) > ASKERS_MAX:
            _, former = self._kept.popitem(last=False)
        if former is not None:
            await self._end(former)
        return found

    def _make(self, group: str, is_stable: bool) -> Any:  # noqa: FBT001 - half of a key
        config = consumer_config(self._link.settings, group)
        config["isolation.level"] = "read_committed" if is_stable else "read_uncommitted"
        return Consumer(self._link.config(config), logger=sdk_log)

    async def _end(self, asker: Any) -> None:
        with suppress(Exception):
            await self._link.loop.run_in_executor(None, asker.close)
