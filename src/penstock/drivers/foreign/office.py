"""What a client asks of a foreign broker besides messages: topics, subscriptions, dead letters.

The rules are those of our own broker, put together from the few things a carrier can do.
"""

from asyncio import gather
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import msgspec

from penstock.batch import encode_columns
from penstock.batch.frame import Frame
from penstock.drivers.foreign.carrier import (
    Carrier,
    ManyCarrier,
    NamedCarrier,
    OwnReaders,
    PartitionCarrier,
    PolicyCarrier,
    SubscriptionRow,
    SwapCarrier,
    TopicRow,
)
from penstock.drivers.foreign.envelope import DEAD_MARK, Letter, columns_of
from penstock.drivers.foreign.readers import ReaderCarrier, Readers, is_about_reader
from penstock.vocabulary import names
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import (
    InvalidArgument,
    PartitionsOnlyGrow,
    SubscriptionConflict,
    SubscriptionInUse,
    TopicExists,
    TopicInUse,
    UnknownSubscription,
    UnknownTopic,
    Unsupported,
)
from penstock.vocabulary.filters import is_pattern, matches
from penstock.vocabulary.message import Kind
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy

DEAD_PAGE: Final = 500
"""Dead letters looked at together."""
TOPICS_PAGE: Final = 16
"""Topics whose subscriptions are asked for together."""
ALL: Final = 1 << 30


class Office:
    """The administrative half of a ForeignDriver."""

    def __init__(
        self, carrier: Carrier,
        expired_here: Callable[[], Counter[tuple[str, str | None]]] = Counter,
    ) -> None:  # fmt: skip
        self._carrier = carrier
        self._expired_here = expired_here
        self._known: dict[str, int] = {}
        """Topics that are certainly there, and their partitions."""
        self._readers: Readers | None = None
        if carrier.capabilities.has_readers:
            self._readers = Readers(cast("ReaderCarrier", carrier), self.ensure_topic)

    async def answer(self, request: q.Request) -> Any:
        """Does what is asked. Raises Unsupported for what a foreign broker cannot tell."""
        if self._readers is not None and is_about_reader(request):
            return await self._answer_reader(request)
        handler = _HANDLERS.get(type(request))
        if handler is None:
            what = type(request).__name__
            raise Unsupported(f"{self._scheme}: URLs cannot do this: {_SAID.get(what, what)}")
        return await handler(self, request)

    async def _answer_reader(self, request: Any) -> Any:
        assert self._readers is not None
        if not isinstance(self._carrier, OwnReaders):
            return await self._readers.answer(request)
        if isinstance(request, q.OpenReader | q.CreateSubscription):
            await self.ensure_topic(request.topic)
        return await self._carrier.answer_reader(request)

    @property
    def _scheme(self) -> str:
        return self._carrier.capabilities.scheme

    # -- topics ----------------------------------------------------------------------------------

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has, as far as is known."""
        return 1 if self._carrier.traits.has_own_map else self._known.get(topic, 1)

    def forget_topic(self, topic: str) -> None:
        """The topic was found missing."""
        self._known.pop(topic, None)

    def knows_topic(self, topic: str) -> bool:
        """True when a topic is certainly there."""
        return topic in self._known

    async def ensure_topic(self, topic: str) -> None:
        """Creates a topic when it is missing."""
        if topic in self._known:
            return
        row = await self._carrier.find_topic(topic)
        if row is None:
            policy, partitions = TopicPolicy(), self._carrier.traits.partitions_usual
            if names.is_dead_topic(topic):
                source, _, subscription = topic.partition(names.DEAD_MARK)
                policy = TopicPolicy(retain_s=None, dead_of=f"{source}\n{subscription}")
                partitions = 1
            if not await self._put(topic, partitions, policy, None):
                await self.ensure_topic(topic)  # somebody was quicker
                return
            self._known[topic] = partitions
        else:
            self._known[topic] = row.partitions

    async def _put(
        self, topic: str, partitions: int, policy: TopicPolicy, before: TopicRow | None
    ) -> bool:
        """Makes or changes a topic; False when it is not as `before` says any more."""
        if isinstance(self._carrier, SwapCarrier):
            return await self._carrier.swap_topic(topic, partitions, policy, before)
        await self._carrier.put_topic(topic, partitions, policy)
        return True

    async def topic_names(self) -> list[str]:
        """Every topic."""
        if isinstance(self._carrier, ManyCarrier):
            return sorted(await self._carrier.topic_names())
        return sorted(row.topic for row in await self._carrier.list_topics())

    async def _topic(self, topic: str) -> TopicRow:
        row = await self._carrier.find_topic(topic)
        if row is None:
            self.forget_topic(topic)
            raise UnknownTopic(
                f"there is no topic {topic!r}: publish or subscribe to it once, or create it"
            )
        return row

    async def _create_topic(self, request: q.CreateTopic) -> None:
        row = await self._carrier.find_topic(request.topic)
        if row is None or not row.is_set:
            if not await self._put(request.topic, request.partitions, request.policy, row):
                await self._create_topic(request)  # somebody was quicker
                return
            self._known[request.topic] = request.partitions
        elif (row.partitions, row.policy) != (request.partitions, self._kept(request.policy)):
            raise TopicExists(
                f"topic {request.topic!r} exists with {row.partitions} partition(s) and policy "
                f"{msgspec.to_builtins(row.policy)}; change it with alter_topic"
            )

    def _kept(self, policy: TopicPolicy) -> TopicPolicy:
        carrier = self._carrier
        return carrier.kept_policy(policy) if isinstance(carrier, PolicyCarrier) else policy

    async def _alter_topic(self, request: q.AlterTopic) -> None:
        row = await self._topic(request.topic)
        partitions = request.partitions or row.partitions
        if partitions < row.partitions:
            raise PartitionsOnlyGrow(
                f"topic {request.topic!r} has {row.partitions} partitions, which cannot become "
                f"{partitions}"
            )
        policy = _changed(row.policy, request.changes)
        if not await self._put(request.topic, partitions, policy, row):
            await self._alter_topic(request)  # somebody else changed it: once more, over that
            return
        self._known[request.topic] = partitions

    async def _delete_topic(self, request: q.DeleteTopic) -> None:
        await self._topic(request.topic)
        for row in await self._carrier.list_subscriptions(request.topic):
            if row.consumers:
                raise TopicInUse(
                    f"topic {request.topic!r} has consumers on subscription {row.subscription!r}; "
                    "close them first"
                )
        self.forget_topic(request.topic)
        await self._carrier.drop_topic(request.topic)

    async def _list_topics(self, _request: q.ListTopics) -> list[dict[str, Any]]:
        rows = sorted(await self._carrier.list_topics(), key=lambda row: row.topic)
        listed = await self._list_many([row.topic for row in rows])
        return [_described(row, listed[row.topic]) for row in rows]

    async def _list_many(self, topics: list[str]) -> dict[str, list[SubscriptionRow]]:
        if isinstance(self._carrier, ManyCarrier):
            return await self._carrier.list_many(topics)
        found: dict[str, list[SubscriptionRow]] = {}
        for low in range(0, len(topics), TOPICS_PAGE):
            page = topics[low : low + TOPICS_PAGE]
            rows = await gather(*map(self._carrier.list_subscriptions, page))
            found.update(zip(page, rows, strict=True))
        return found

    async def _describe_topic(self, request: q.DescribeTopic) -> dict[str, Any]:
        row = await self._topic(request.topic)
        told = _described(row, await self._carrier.list_subscriptions(row.topic))
        if self._readers is not None and not isinstance(self._carrier, OwnReaders):
            told["ends"] = [await self._readers.end(row.topic)]
        return told

    # -- subscriptions ---------------------------------------------------------------------------

    async def find_subscription(self, topic: str, name: str) -> SubscriptionRow | None:
        """One subscription of a topic; None when there is none."""
        rows = await self._rows(topic, name)
        return next((row for row in rows if row.subscription == name), None)

    async def _rows(self, topic: str, name: str) -> list[SubscriptionRow]:
        """The subscriptions of a topic, those of this name at least."""
        if isinstance(self._carrier, NamedCarrier):
            return await self._carrier.list_named(topic, name)
        return await self._carrier.list_subscriptions(topic)

    async def check_kind(self, topic: str, name: str, kind: Kind) -> None:
        """Raises SubscriptionConflict when a multicast has the name of something else.

        A multicast is its members, `name@consumer`; nothing else is kept of it.
        """
        is_multicast = kind is Kind.MULTICAST
        for row in await self._rows(topic, name):
            base, mark, _ = row.subscription.partition(names.MEMBER_MARK)
            if base == name and bool(mark) != is_multicast:
                theirs = Kind.MULTICAST if mark else row.policy.kind
                raise SubscriptionConflict(
                    f"subscription {name!r} of topic {topic!r} has kind {theirs.value}, not "
                    f"{kind.value}: use another name, or delete it first"
                )

    async def create_subscription(
        self, topic: str, name: str, policy: SubscriptionPolicy, start: Any
    ) -> None:
        """Creates a subscription. Raises Unsupported."""
        can = self._carrier.capabilities
        if policy.kind not in can.kinds:
            known = " or ".join(repr(each.value) for each in can.kinds)
            raise Unsupported(
                f"subscription kind {policy.kind.value!r} is not available on {can.scheme}: URLs; "
                f"use {known}"
            )
        if policy.qos not in can.qos:
            raise Unsupported(f"qos {policy.qos} is not available on {can.scheme}: URLs")
        await self._carrier.put_subscription(topic, name, policy, start)

    async def _subscription(self, topic: str, name: str) -> SubscriptionRow:
        if not is_pattern(topic):
            await self._topic(topic)
        row = await self.find_subscription(topic, name)
        if row is None:
            listed = await self._carrier.list_subscriptions(topic)
            known = ", ".join(repr(each.subscription) for each in listed) or "none"
            raise UnknownSubscription(
                f"topic {topic!r} has no subscription {name!r}; it has: {known}"
            )
        return row

    async def _create_subscription(self, request: q.CreateSubscription) -> None:
        if is_pattern(request.topic):
            raise Unsupported(
                f"{self._scheme}: URLs keep no subscription over a pattern of topics: subscribe "
                f"to {request.topic!r}, which creates one in every topic that matches"
            )
        await self.ensure_topic(request.topic)
        await self.check_kind(request.topic, request.subscription, request.policy.kind)
        if request.policy.kind is Kind.MULTICAST:
            return  # its members come with their consumers
        row = await self.find_subscription(request.topic, request.subscription)
        if row is None:
            start = "earliest" if request.start is None else request.start
            await self.create_subscription(
                request.topic, request.subscription, request.policy, start
            )
        elif row.policy != request.policy:
            raise SubscriptionConflict(
                f"subscription {request.subscription!r} of topic {request.topic!r} exists with "
                f"policy {msgspec.to_builtins(row.policy)}; change it with alter_subscription"
            )

    async def _alter_subscription(self, request: q.AlterSubscription) -> None:
        row = await self._subscription(request.topic, request.subscription)
        for fixed in ("kind", "qos"):
            if request.changes.get(fixed, getattr(row.policy, fixed)) != getattr(row.policy, fixed):
                raise SubscriptionConflict(f"{fixed} is chosen when a subscription is created")
        policy = _changed(row.policy, request.changes)
        if policy == row.policy:
            return  # every consumer of a program says the same, and others may be at work
        await self._carrier.put_subscription(request.topic, request.subscription, policy, None)

    async def _delete_subscription(self, request: q.DeleteSubscription) -> None:
        row = await self._subscription(request.topic, request.subscription)
        if row.consumers:
            raise SubscriptionInUse(
                f"subscription {request.subscription!r} of topic {request.topic!r} has "
                f"{len(row.consumers)} consumer(s); close them first"
            )
        await self._carrier.drop_subscription(request.topic, request.subscription)

    async def _seek(self, request: q.Seek) -> None:
        await self._subscription(request.topic, request.subscription)
        await self._carrier.seek(request.topic, request.subscription, request.to)

    async def _list_subscriptions(self, request: q.ListSubscriptions) -> list[dict[str, Any]]:
        if request.topic is None:
            topics = await self.topic_names()
        elif is_pattern(request.topic):
            topics = await self._matching(request.topic)
        else:
            topics = [(await self._topic(request.topic)).topic]
        found: list[dict[str, Any]] = []
        for rows in (await self._list_many(topics)).values():
            rows.sort(key=lambda row: row.subscription)
            found += await gather(*map(self._subscription_row, rows))
        return found

    async def _matching(self, pattern: str) -> list[str]:
        """Where the subscriptions of a pattern are: with itself, or in each topic it matches."""
        if self._carrier.traits.has_patterns:
            return [pattern]
        return [topic for topic in await self.topic_names() if matches(pattern, topic)]

    async def _subscription_row(self, row: SubscriptionRow) -> dict[str, Any]:
        dead = await self._carrier.find_topic(names.dead_topic(row.topic, row.subscription))
        return {
            "topic": row.topic,
            "subscription": row.subscription,
            "kind": row.policy.kind.value,
            "consumers": row.consumers,
            "waiting": row.waiting,
            "waiting_min": row.waiting_min,
            "upto": row.upto,
            "leased": row.leased,
            "acked": row.acked,
            "dead": dead.messages if dead is not None else 0,
            "delayed": None,
            "expired": None,
            "expired_here": self._expired_here()[row.topic, row.subscription],
            "dropped": None,
            "policy": msgspec.to_builtins(row.policy),
        }

    # -- looking, dead letters -------------------------------------------------------------------

    async def _peek(self, request: q.Peek) -> list[tuple[int, Frame]]:
        await self._topic(request.topic)
        topic, carrier, after = request.topic, self._carrier, request.after or None
        if request.partition is not None and isinstance(carrier, PartitionCarrier):
            letters = await carrier.look_in(topic, request.partition, request.limit, after)
        else:
            letters = await carrier.look(topic, request.limit, after)
        return [(partition, frame) for partition, frame in _frames(letters)]

    async def _dead(
        self, topic: str, subscription: str, which: q.Filter, limit: int | None
    ) -> list[Letter]:
        """The dead letters that are meant."""
        await self._subscription(topic, subscription)
        dead = names.dead_topic(topic, subscription)
        if await self._carrier.find_topic(dead) is None:
            return []
        letters = await self._carrier.look(dead, ALL, None)
        return [letter for letter in letters if _is_meant(letter, which)][:limit]

    async def _redrive(self, request: q.Redrive) -> int:
        letters = await self._dead(
            request.topic, request.subscription, request.which, request.limit
        )
        if request.is_dry:
            return len(letters)
        dead = names.dead_topic(request.topic, request.subscription)
        for low in range(0, len(letters), DEAD_PAGE):
            part = letters[low : low + DEAD_PAGE]
            back = [_sent_back(letter, request.subscription) for letter in part]
            await self._carrier.send(request.topic, back, None)
            await self._carrier.remove(dead, part)
        return len(letters)

    async def _purge_dead(self, request: q.PurgeDead) -> int:
        letters = await self._dead(
            request.topic, request.subscription, request.which, request.limit
        )
        if not request.is_dry:
            dead = names.dead_topic(request.topic, request.subscription)
            await self._carrier.remove(dead, letters)
        return len(letters)

    async def _stats(self, _request: q.Stats) -> dict[str, Any]:
        rows = await self._carrier.list_topics()
        many = await self._list_many([row.topic for row in rows])
        listed = [each for found in many.values() for each in found]
        return {
            "topics": len(rows),
            "subscriptions": len(listed),
            "consumers": sum(len(each.consumers) for each in listed),
            "messages_held": sum(row.messages or 0 for row in rows),
            "expired_here": self._expired_here().total(),
            "health": {"status": "ok", "reasons": []},
        }


def _described(row: TopicRow, listed: list[SubscriptionRow]) -> dict[str, Any]:
    return {
        "topic": row.topic,
        "partitions": row.partitions,
        "messages": row.messages,
        "bytes": row.bytes,
        "published": row.published,
        "subscriptions": sorted(each.subscription for each in listed),
        "policy": msgspec.to_builtins(row.policy),
        "created_at": row.created_at,
    }


def _frames(letters: Sequence[Letter]) -> list[tuple[int, Frame]]:
    by_partition: dict[int, list[Letter]] = {}
    for letter in letters:
        by_partition.setdefault(letter.partition, []).append(letter)
    return [
        (
            partition,
            Frame(
                encode_columns(columns_of(group)), range(len(group)), range(len(group)), 0,
                bytes(16), 0, 0, [(letter.offset, letter.position) for letter in group],
            ),
        )
        for partition, group in by_partition.items()
    ]  # fmt: skip


def _is_meant(letter: Letter, which: q.Filter) -> bool:
    if which.id is not None and letter.id != which.id:
        return False
    reason = letter.headers.get(DEAD_MARK + "reason", "")
    return which.reason_contains is None or which.reason_contains in reason


def _sent_back(letter: Letter, subscription: str) -> Letter:
    kept = {k: v for k, v in letter.headers.items() if not k.startswith(DEAD_MARK)}
    return msgspec.structs.replace(
        letter, headers=kept, target=subscription, token=None,
        dedup=f"redrive {subscription} {letter.position} {letter.attempts}",
    )  # fmt: skip


def _changed(policy: Any, changes: dict[str, Any]) -> Any:
    fields = {**msgspec.to_builtins(policy), **msgspec.to_builtins(changes)}
    try:
        return msgspec.convert(fields, type(policy))
    except msgspec.ValidationError as error:
        raise InvalidArgument(f"wrong setting: {error}") from error


_HANDLERS: Final[dict[type, Callable[[Office, Any], Any]]] = {
    q.CreateTopic: Office._create_topic,  # noqa: SLF001 - the table is part of the class
    q.AlterTopic: Office._alter_topic,  # noqa: SLF001
    q.DeleteTopic: Office._delete_topic,  # noqa: SLF001
    q.ListTopics: Office._list_topics,  # noqa: SLF001
    q.DescribeTopic: Office._describe_topic,  # noqa: SLF001
    q.CreateSubscription: Office._create_subscription,  # noqa: SLF001
    q.AlterSubscription: Office._alter_subscription,  # noqa: SLF001
    q.DeleteSubscription: Office._delete_subscription,  # noqa: SLF001
    q.ListSubscriptions: Office._list_subscriptions,  # noqa: SLF001
    q.Seek: Office._seek,  # noqa: SLF001
    q.Peek: Office._peek,  # noqa: SLF001
    q.Redrive: Office._redrive,  # noqa: SLF001
    q.PurgeDead: Office._purge_dead,  # noqa: SLF001
    q.Stats: Office._stats,  # noqa: SLF001
}
_SAID: Final = {
    "Explain": "explain: the broker does not tell why a message waits",
    "ConfirmTime": "confirm_time: the broker has its own clock",
    "OpenReader": "readers",
    "DescribeReader": "readers",
    "PlanRanges": "readers",
    "ReadRange": "readers",
    "CommitReader": "readers",
    "ReleaseReader": "readers",
}
