"""A connection to KubeMQ: a topic is copied to the queue of each of its subscriptions."""

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

from penstock.drivers import capabilities
from penstock.drivers.foreign.address import Address
from penstock.drivers.foreign.carrier import (
    Feed,
    Placed,
    Seat,
    Sender,
    SubscriptionRow,
    TopicRow,
    Traits,
)
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.foreign.reaching import answered
from penstock.drivers.kubemq import channels
from penstock.drivers.kubemq.feed import KubeMqFeed
from penstock.drivers.kubemq.service import Hand, Service
from penstock.vocabulary.errors import InvalidArgument, PenstockError, Unavailable, Unsupported
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy

PAGE: Final = 1_000
MOVE_WAIT_S: Final = 0.1
SPARED_MAX: Final = 100_000


async def connect(address: Address) -> "KubeMqCarrier":
    """A connection, proved to work. Raises Unavailable, AccessRefused, InvalidArgument."""
    if len(address.hosts) > 1 or address.user:
        raise InvalidArgument(
            f"{address.text} is not 'kubemq://[:TOKEN@]HOST[:PORT]': name one host, and a token in "
            "place of a password"
        )
    carrier = KubeMqCarrier(address)
    try:
        await answered(address, carrier.service.ping())
    except BaseException:
        await carrier.close()
        raise
    return carrier


class KubeMqCarrier:
    """One connection to KubeMQ."""

    capabilities = capabilities.KUBEMQ
    traits = Traits(release_s_max=0.0)

    def __init__(self, address: Address) -> None:
        self.service = Service(address)
        self._policies: dict[tuple[str, str], SubscriptionPolicy] = {}
        self._feeds: dict[KubeMqFeed, str] = {}
        self.spared: dict[tuple[str, str], int] = {}
        """(Queue, message) → deliveries here that never reached the application."""

    async def close(self) -> None:
        with suppress(Exception):
            await self.service.close()

    def spare(self, channel: str, message_id: str) -> None:
        """A delivery never reached the application: its attempt does not count here."""
        place = channel, message_id
        self.spared[place] = self.spared.get(place, 0) + 1
        while len(self.spared) > SPARED_MAX:
            del self.spared[next(iter(self.spared))]

    # -- sending ---------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        letters: Sequence[Letter],
        sender: Sender | None,  # noqa: ARG002
    ) -> list[Placed]:
        """To every queue of the topic; to the topic's own when it has no subscription."""
        queues = await self._queues(topic) or [channels.escaped(topic)]
        now = time.time()
        messages: list[dict[str, Any]] = []
        for letter in letters:
            meant = [channels.queue_of(topic, letter.target)] if letter.target else queues
            messages += channels.fields_of(letter, meant, now)
        for low in range(0, len(messages), PAGE):
            failed = [why for why in await self.service.send(messages[low : low + PAGE]) if why]
            if failed:
                raise Unavailable(f"topic {topic!r}: KubeMQ did not store a message: {failed[0]}")
        return [Placed(None, letter.position) for letter in letters]

    async def _queues(self, topic: str) -> list[str]:
        listed = await self.service.channels(channels.escaped(topic))
        return [each["name"] for each in listed if channels.belongs(each["name"], topic)]

    # -- consuming -------------------------------------------------------------------------------

    async def open_feed(self, seat: Seat) -> Feed:
        if seat.subscription is None:
            check_start(seat.start, ("latest",))
            channel = channels.passing_queue(seat.topic)
            await self.service.create(channel)
        else:
            channel = channels.queue_of(seat.topic, seat.subscription)
        feed = KubeMqFeed(self, seat, channel)
        self._feeds[feed] = channel
        return feed

    async def leave(self, feed: KubeMqFeed, channel: str) -> None:
        """A consumer is gone."""
        self._feeds.pop(feed, None)
        if feed.seat.subscription is None:
            with suppress(PenstockError):
                await self.service.delete(channel)

    # -- topics ----------------------------------------------------------------------------------

    async def find_topic(self, topic: str) -> TopicRow | None:
        rows = await self.list_topics(channels.escaped(topic))
        return next((row for row in rows if row.topic == topic), None)

    async def list_topics(self, search: str = "") -> list[TopicRow]:
        found: dict[str, TopicRow] = {}
        for each in await self.service.channels(search):
            parts = channels.parts_of(each["name"])
            if parts is not None and parts[0] not in found:
                found[parts[0]] = TopicRow(parts[0], TopicPolicy(), 1, None, None, None)
        return list(found.values())

    async def put_topic(self, topic: str, partitions: int, policy: TopicPolicy) -> None:
        capabilities.check_topic_policy(
            self.capabilities, partitions, policy, ("retain_s",) if policy.dead_of else ()
        )
        await self.service.create(channels.escaped(topic))

    async def drop_topic(self, topic: str) -> None:
        for channel in [*await self._queues(topic), channels.escaped(topic)]:
            await self.service.delete(channel)

    # -- subscriptions ---------------------------------------------------------------------------

    async def list_subscriptions(self, topic: str) -> list[SubscriptionRow]:
        found: list[SubscriptionRow] = []
        for channel in await self._queues(topic):
            parts = channels.parts_of(channel)
            if parts is None or parts[1] is None:
                continue
            policy = self._policies.get((topic, parts[1]), SubscriptionPolicy())
            live = [feed.seat.consumer for feed, at in self._feeds.items() if at == channel]
            found.append(SubscriptionRow(topic, parts[1], policy, live))
        return found

    async def put_subscription(
        self, topic: str, name: str, policy: SubscriptionPolicy, start: Any
    ) -> None:
        if start is not None:
            check_start(start, ("earliest", "latest"))
            channel = channels.queue_of(topic, name)
            await self.service.create(channel)
            if start == "earliest":
                await self._move(channels.escaped(topic), channel)
        self._policies[topic, name] = policy

    async def _move(self, source: str, target: str) -> None:
        """What no subscription took goes to the first one that is made."""
        hand = Hand(self.service)
        try:
            while messages := await hand.take(source, PAGE, MOVE_WAIT_S):
                why = await hand.move([each.Attributes.Sequence for each in messages], target)
                if why:
                    raise Unavailable(f"{source!r} was not moved to {target!r}: {why}")
        finally:
            hand.close()

    async def drop_subscription(self, topic: str, name: str) -> None:
        self._policies.pop((topic, name), None)
        await self.service.delete(channels.queue_of(topic, name))

    async def seek(self, topic: str, name: str, to: Any) -> None:
        raise Unsupported(
            f"subscription {name!r} of topic {topic!r} cannot be moved to {to!r}: kubemq: queues "
            "keep no place"
        )

    # -- looking ---------------------------------------------------------------------------------

    async def look(self, topic: str, limit: int, after: int | str | None) -> list[Letter]:
        if after is not None:
            raise Unsupported("kubemq: queues are looked at from their beginning only")
        found: dict[str, Letter] = {}
        for channel in [channels.escaped(topic), *await self._queues(topic)]:
            for message in await self.service.peek(channel, min(limit, PAGE)):
                found.setdefault(message.MessageID, channels.opened(message))
        return list(found.values())[:limit]

    async def remove(self, topic: str, letters: Sequence[Letter]) -> None:
        """Takes them out of the topic's own queue; others that come along go back."""
        wanted = {letter.position for letter in letters}
        hand = Hand(self.service)
        try:
            messages = await hand.take(channels.escaped(topic), PAGE, MOVE_WAIT_S)
            numbers = [each.Attributes.Sequence for each in messages if each.MessageID in wanted]
            if numbers:
                await hand.finish(numbers)
            if hand.held:
                await hand.give_back(sorted(hand.held))
        finally:
            hand.close()


def check_start(start: Any, known: tuple[str, ...]) -> None:
    """Raises Unsupported for a start that queues do not have."""
    if start not in known:
        listed = " or ".join(repr(each) for each in known)
        raise Unsupported(f"start {start!r}: kubemq: subscriptions begin at {listed}")
