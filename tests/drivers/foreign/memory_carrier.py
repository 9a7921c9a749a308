"""A foreign broker in memory, with faults the test orders: what the common half is tested on.

With `Traits(has_leases=False, has_release=False)` it is like a broker that only hands out and takes
acks, and everything else is the desk's; with the default it is like one that does it all.
"""

import asyncio
import time
from collections.abc import Sequence
from itertools import count
from typing import Any

import msgspec

from penstock.drivers import capabilities
from penstock.drivers.foreign.carrier import (
    Feed,
    Placed,
    Refused,
    Release,
    Seat,
    Sender,
    SubscriptionRow,
    TopicRow,
    Traits,
)
from penstock.drivers.foreign.envelope import Letter, seal, unseal
from penstock.vocabulary.errors import PositionNotHeld, Unavailable, UnknownTopic
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy

CAPABILITIES = msgspec.structs.replace(
    capabilities.REDIS, scheme="shop", qos=(1,), has_transactions=False, has_patterns=True,
    has_delay=True, has_readers=False,
)  # fmt: skip


class Subscription:
    def __init__(self, policy: SubscriptionPolicy, at: int) -> None:
        self.policy = policy
        self.at = at
        self.pending: dict[int, list[Any]] = {}
        """Offset → [consumer, attempt, free at]."""
        self.consumers: list[str] = []


class Topic:
    def __init__(self, policy: TopicPolicy) -> None:
        self.policy = policy
        self.records: dict[int, tuple[dict[str, str], bytes, int]] = {}
        self.next = 0
        self.subscriptions: dict[str, Subscription] = {}
        self.seen: dict[str, int] = {}


class Shop:
    """The broker itself, which several carriers share."""

    def __init__(self) -> None:
        self.topics: dict[str, Topic] = {}
        self.faults: dict[str, int] = {}
        """Method → how many more calls fail before they do anything."""
        self.late: dict[str, int] = {}
        """Method → how many more calls fail after they did everything."""
        self.error: Exception | None = None
        """Raised instead of Unavailable."""
        self.calls: list[str] = []

    def begin(self, name: str) -> None:
        self.calls.append(name)
        self._fail(self.faults, name)

    def end(self, name: str) -> None:
        self._fail(self.late, name)

    def _fail(self, table: dict[str, int], name: str) -> None:
        if table.get(name):
            table[name] -= 1
            raise self.error or Unavailable(f"{name} failed as ordered")


class MemoryCarrier:
    def __init__(self, shop: Shop | None = None, traits: Traits | None = None) -> None:
        self.shop = shop or Shop()
        self.capabilities = CAPABILITIES
        self.traits = traits or Traits(fetch_s=0.05)
        self.is_closed = False
        self._numbers = count()

    async def close(self) -> None:
        self.is_closed = True

    async def send(
        self, topic: str, letters: Sequence[Letter], sender: Sender | None
    ) -> list[Placed]:
        self.shop.begin("send")
        found = self._topic(topic)
        placed = [self.put(found, letter) for letter in letters]
        self.shop.end("send")
        return placed

    def put(self, topic: Topic, letter: Letter) -> Placed:
        known = topic.seen.get(letter.dedup) if letter.dedup else None
        if known is not None:
            return Placed(known, f"0:{known}", True)
        offset, topic.next = topic.next, topic.next + 1
        topic.records[offset] = (seal(letter), letter.body or b"", int(time.time() * 1000))
        if letter.dedup:
            topic.seen[letter.dedup] = offset
        return Placed(offset, f"0:{offset}")

    def _topic(self, name: str) -> Topic:
        if name not in self.shop.topics:
            raise UnknownTopic(f"no topic {name!r}")
        return self.shop.topics[name]

    async def open_feed(self, seat: Seat) -> Feed:
        self.shop.begin("open_feed")
        topic = self._topic(seat.topic)
        name = seat.subscription
        if name is None:
            name = f"ephemeral {next(self._numbers)}"
            topic.subscriptions[name] = Subscription(seat.policy, self._place(topic, seat.start))
        topic.subscriptions[name].consumers.append(seat.consumer)
        return MemoryFeed(self, topic, name, f"{seat.consumer}-{next(self._numbers)}", seat)

    def opened(self, topic: Topic, offset: int, attempt: int) -> Letter:
        headers, body, at = topic.records[offset]
        letter = unseal(headers, body, id=str(offset), at=at)
        letter.offset, letter.position, letter.attempt = offset, f"0:{offset}", attempt
        letter.token = (offset, attempt)
        return letter

    async def find_topic(self, topic: str) -> TopicRow | None:
        found = self.shop.topics.get(topic)
        return None if found is None else self._row(topic, found)

    def _row(self, name: str, topic: Topic) -> TopicRow:
        size = sum(len(body) for _, body, _ in topic.records.values())
        return TopicRow(name, topic.policy, 1, len(topic.records), size, topic.next)

    async def put_topic(self, topic: str, partitions: int, policy: TopicPolicy) -> None:
        kept = TopicPolicy.__struct_fields__
        capabilities.check_topic_policy(self.capabilities, partitions, policy, kept)
        self.shop.topics.setdefault(topic, Topic(policy)).policy = policy

    async def drop_topic(self, topic: str) -> None:
        self.shop.topics.pop(topic)

    async def list_topics(self) -> list[TopicRow]:
        self.shop.begin("list_topics")
        return [self._row(name, topic) for name, topic in self.shop.topics.items()]

    async def list_subscriptions(self, topic: str) -> list[SubscriptionRow]:
        found = self.shop.topics.get(topic)
        if found is None:
            return []
        return [
            SubscriptionRow(
                topic, name, each.policy, list(each.consumers), found.next - each.at,
                len(each.pending),
            )
            for name, each in found.subscriptions.items()
            if not name.startswith("ephemeral")
        ]  # fmt: skip

    async def put_subscription(
        self, topic: str, name: str, policy: SubscriptionPolicy, start: Any
    ) -> None:
        found = self._topic(topic)
        if start is None:
            found.subscriptions[name].policy = policy
        else:
            found.subscriptions[name] = Subscription(policy, self._place(found, start))

    def _place(self, topic: Topic, start: Any) -> int:
        if start == "earliest":
            return 0
        if start == "latest":
            return topic.next
        if isinstance(start, float | int):
            later = [at for at, row in topic.records.items() if row[2] >= start * 1000]
            return min(later, default=topic.next)
        offset = int(str(start).partition(":")[2])
        if offset not in topic.records:
            raise PositionNotHeld(f"topic does not hold position {start!r}; the lowest is '0:0'")
        return offset

    async def drop_subscription(self, topic: str, name: str) -> None:
        self._topic(topic).subscriptions.pop(name)

    async def seek(self, topic: str, name: str, to: Any) -> None:
        found = self._topic(topic)
        found.subscriptions[name].at = self._place(found, to)
        found.subscriptions[name].pending.clear()

    async def look(self, topic: str, limit: int, after: int | str | None) -> list[Letter]:
        found = self._topic(topic)
        start = after if isinstance(after, int) else 0
        return [self.opened(found, at, 0) for at in sorted(found.records) if at >= start][:limit]

    async def remove(self, topic: str, letters: Sequence[Letter]) -> None:
        for letter in letters:
            assert letter.offset is not None
            self._topic(topic).records.pop(letter.offset, None)


class MemoryFeed:
    def __init__(
        self, carrier: MemoryCarrier, topic: Topic, name: str, consumer: str, seat: Seat
    ) -> None:
        self._carrier = carrier
        self._shop = carrier.shop
        self._topic = topic
        self._name = name
        self._consumer = consumer
        self._seat = seat
        self._lease_s = seat.policy.lease_s if carrier.traits.has_leases else 1e9

    @property
    def _subscription(self) -> Subscription:
        return self._topic.subscriptions[self._name]

    async def fetch(self, count: int, bytes_max: int) -> list[Letter]:
        self._shop.begin("fetch")
        ends = time.monotonic() + self._carrier.traits.fetch_s
        while True:
            found = self._take(count)
            if found or time.monotonic() > ends:
                return found
            await asyncio.sleep(0.005)

    def _take(self, count: int) -> list[Letter]:
        subscription, now = self._subscription, time.monotonic()
        found: list[Letter] = []
        for offset, row in subscription.pending.items():
            if row[2] <= now and len(found) < count:
                row[:] = [self._consumer, row[1] + 1, now + self._lease_s]
                found.append(self._carrier.opened(self._topic, offset, row[1]))
        while subscription.at < self._topic.next and len(found) < count:
            offset, subscription.at = subscription.at, subscription.at + 1
            if offset in self._topic.records:
                subscription.pending[offset] = [self._consumer, 1, now + self._lease_s]
                attempt = 1 if self._carrier.traits.counts_attempts else 0
                found.append(self._carrier.opened(self._topic, offset, attempt))
        return found

    def _why(self, letter: Letter) -> str | None:
        row = self._subscription.pending.get(letter.token[0])
        if row is None or not self._carrier.traits.has_leases:
            return None
        is_ours = row[0] == self._consumer and row[1] == letter.token[1]
        return None if is_ours else "it was handed out again"

    async def settle(self, letters: Sequence[Letter]) -> list[Refused]:
        self._shop.begin("settle")
        refused: list[Refused] = []
        for letter in letters:
            why = self._why(letter)
            if why is not None:
                refused.append(Refused(letter, why))
            else:
                self._subscription.pending.pop(letter.token[0], None)
        self._shop.end("settle")
        return refused

    async def release(self, releases: Sequence[Release]) -> list[Refused]:
        self._shop.begin("release")
        for letter, delay_s, is_unstarted in releases:
            row = self._subscription.pending.get(letter.token[0])
            if row is not None and self._why(letter) is None:
                row[:] = ["", row[1] - is_unstarted, time.monotonic() + delay_s]
        return []

    async def renew(self, letters: Sequence[Letter]) -> None:
        self._shop.begin("renew")
        for letter in letters:
            row = self._subscription.pending.get(letter.token[0])
            if row is not None and self._why(letter) is None:
                row[2] = time.monotonic() + self._lease_s

    async def bury(self, dead_topic: str, letters: Sequence[Letter]) -> list[Refused]:
        self._shop.begin("bury")
        if dead_topic not in self._shop.topics:
            await self._carrier.put_topic(dead_topic, 1, TopicPolicy(retain_s=None))
        await self._carrier.send(dead_topic, letters, None)
        return await self.settle(letters)

    async def close(self) -> None:
        if self._seat.consumer in self._subscription.consumers:
            self._subscription.consumers.remove(self._seat.consumer)
        for row in self._subscription.pending.values():
            if row[0] == self._consumer:
                row[2] = 0.0
        if self._seat.subscription is None:
            self._topic.subscriptions.pop(self._name, None)
