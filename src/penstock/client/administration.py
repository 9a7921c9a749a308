"""Topics, subscriptions, held messages and dead letters, as a client sees them."""

from asyncio import sleep
from enum import StrEnum
from typing import Any, Final, get_type_hints

import msgspec

from penstock.batch.frame import Frame, Slice
from penstock.client.backups import Backups
from penstock.client.received import Hold, ReceivedMessage, Sheet
from penstock.vocabulary import names
from penstock.vocabulary import requests as q
from penstock.vocabulary.errors import InvalidArgument, UnknownSubscription, UnknownTopic
from penstock.vocabulary.filters import check_filter, is_pattern
from penstock.vocabulary.message import Kind
from penstock.vocabulary.places import check_place
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy
from penstock.vocabulary.records import Cause

LOOK_DEFAULT: Final = 100
"""Messages shown when no limit is given."""
OFFSET_MAX: Final = 1 << 62
"""No partition has so many messages."""
REDRIVES_PER_S: Final = 10
"""With a rate, dead letters go back in so many portions a second."""


class Administration(Backups):
    """The administrative half of a Client."""

    # -- topics ----------------------------------------------------------------------------------

    async def create_topic(self, topic: str, partitions: int = 1, **policy: Any) -> None:
        """Creates a topic; nothing happens when it exists as asked. Raises TopicExists.

        `policy`: the fields of TopicPolicy, such as `durability="written"` or `retain_s=3600`.
        """
        names.check_topic(topic)
        check_partitions(partitions)
        driver = self._opened()
        await driver.ask(q.CreateTopic(topic, partitions, made(TopicPolicy, policy)))

    async def alter_topic(
        self, topic: str, *, partitions: int | None = None, **policy: Any
    ) -> None:
        """Changes fields of a topic's policy, or gives it more partitions while it is in use.

        Growing moves keys to other partitions: only what is published later lies there. Raises
        UnknownTopic, and PartitionsOnlyGrow when there would be fewer.
        """
        made(TopicPolicy, policy)
        if partitions is not None:
            check_partitions(partitions)
        await self._opened().ask(q.AlterTopic(topic, policy, partitions))

    async def delete_topic(self, topic: str) -> None:
        """Deletes a topic with its messages and subscriptions. Raises UnknownTopic, TopicInUse."""
        await self._opened().ask(q.DeleteTopic(topic))

    async def topics(self) -> list[dict[str, Any]]:
        """Every topic, described."""
        found: list[dict[str, Any]] = await self._opened().ask(q.ListTopics())
        return found

    async def describe_topic(self, topic: str) -> dict[str, Any]:
        """One topic. Raises UnknownTopic."""
        found: dict[str, Any] = await self._opened().ask(q.DescribeTopic(topic))
        return found

    # -- subscriptions ---------------------------------------------------------------------------

    async def create_subscription(
        self, topic: str, subscription: str, *, kind: Kind | str = Kind.SHARED, start: Any = None,
        **policy: Any,
    ) -> None:  # fmt: skip
        """Creates a durable subscription; nothing happens when it exists as asked.

        `start`: 'earliest' (default), 'latest', Unix seconds or a position such as '0:17'.
        `policy`: fields of SubscriptionPolicy, such as `lease_s=60` or `retry=Retry(…)`.
        Raises SubscriptionConflict, Unsupported.
        """
        check_filter(topic)
        names.check_subscription(subscription)
        if start is not None:
            self._check_place("start", start)
        wanted = made(SubscriptionPolicy, {"kind": kind, **policy})
        await self._opened().ask(q.CreateSubscription(topic, subscription, wanted, start))

    async def alter_subscription(self, topic: str, subscription: str, **policy: Any) -> None:
        """Changes fields of a subscription's policy. Raises UnknownSubscription."""
        made(SubscriptionPolicy, policy)
        await self._opened().ask(q.AlterSubscription(topic, subscription, policy))

    async def delete_subscription(self, topic: str, subscription: str) -> None:
        """Deletes a subscription; what only it held is released. Raises SubscriptionInUse."""
        await self._opened().ask(q.DeleteSubscription(topic, subscription))

    def _check_place(self, name: str, place: Any) -> None:
        can = self._opened().capabilities
        check_place(name, place, has_own_positions=can.has_own_positions)

    async def seek(self, topic: str, subscription: str, to: float | str) -> None:
        """Moves a subscription; what its consumers hold is void, and acks of it are refused.

        `to`: 'earliest' (what is still held), 'latest', Unix seconds, or a position such as
        '0:17', which moves that partition only. Raises PositionNotHeld with the lowest one.
        """
        self._check_place("to", to)
        await self._opened().ask(q.Seek(topic, subscription, to))

    async def subscriptions(self, topic: str | None = None) -> list[dict[str, Any]]:
        """Every durable subscription, of one topic or of all, with its counts."""
        found: list[dict[str, Any]] = await self._opened().ask(q.ListSubscriptions(topic))
        return found

    # -- looking ---------------------------------------------------------------------------------

    async def peek(
        self, topic: str, limit: int = LOOK_DEFAULT, *, partition: int | None = None,
        after: int | str = 0,
    ) -> list[ReceivedMessage]:  # fmt: skip
        """Held messages, oldest first, from offset `after` on. Nobody is given them: looking only.

        Where messages have no offsets, `after` is the position of the last one seen.

        Raises UnknownTopic.
        """
        check_limit(limit, has_none=False)
        if not isinstance(after, str):
            check_offset("after", after)
        driver = self._opened()
        if partition is not None:
            count = (await self.describe_topic(topic))["partitions"]
            if not isinstance(partition, int) or not 0 <= partition < count:
                raise InvalidArgument(f"topic {topic!r} has {count} partition(s), no {partition!r}")
        frames = await driver.ask(q.Peek(topic, limit, partition, after))
        shown = Shown(topic)
        return [message for number, frame in frames for message in shown.messages(number, frame)]

    async def topic_log(
        self, topic: str, limit: int = LOOK_DEFAULT
    ) -> dict[str, list[dict[str, Any]]]:
        """What waits for each subscription, in the order it comes: at most `limit` of each.

        Each message is a dict of `timestamp` (Unix ms), `priority`, `msg` and `id`. Raises
        UnknownTopic.
        """
        check_limit(limit, has_none=False)
        found: dict[str, list[dict[str, Any]]] = await self._opened().ask(q.TopicLog(topic, limit))
        return found

    async def dead_letters(
        self, topic: str, subscription: str, limit: int = LOOK_DEFAULT
    ) -> list[ReceivedMessage]:
        """The dead letters of a subscription; headers `penstock-dead-…` tell their story.

        Of a pattern, here and below: those of every topic it has, topic by topic.
        """
        check_limit(limit, has_none=False)
        found: list[ReceivedMessage] = []
        for place in await places(self, topic, subscription):
            try:
                dead = names.dead_topic(place, subscription)
                found += await self.peek(dead, limit - len(found))
            except UnknownTopic:
                await self._check_subscription(place, subscription)
            if len(found) >= limit:
                break
        return found

    async def redrive(
        self, topic: str, subscription: str, *, id: str | None = None,
        reason_contains: str | None = None, limit: int | None = None, rate: float | None = None,
        dry_run: bool = False,
    ) -> int:  # fmt: skip
        """Sends dead letters back to their subscription; returns how many.

        `rate` is in messages a second; `dry_run` only counts.
        """
        which = q.Filter(id, reason_contains)
        check_limit(limit)
        if rate is not None and (not isinstance(rate, int | float) or not rate > 0):
            raise InvalidArgument(f"rate must be messages a second above 0, not {rate!r}")
        total = 0
        for place in await places(self, topic, subscription):
            left = None if limit is None else limit - total
            if left == 0:
                break
            back = q.Redrive(place, subscription, which, left, dry_run)
            total += await self._redrive(back, None if dry_run else rate)
        return total

    async def _redrive(self, back: q.Redrive, rate: float | None) -> int:
        """The dead letters of one topic; with a rate, in portions."""
        ask = self._opened().ask
        if rate is None:
            return int(await ask(back))
        # Counted first, since a message that fails at once is among the dead letters again.
        left = int(await ask(msgspec.structs.replace(back, is_dry=True)))
        portion = max(1, int(rate / REDRIVES_PER_S))
        total = 0
        while left > 0:
            count = int(await ask(msgspec.structs.replace(back, limit=min(portion, left))))
            total += count
            left -= count
            if not count:
                break
            if left:
                await sleep(count / rate)
        return total

    async def purge_dead(
        self, topic: str, subscription: str, *, id: str | None = None,
        reason_contains: str | None = None, limit: int | None = None, dry_run: bool = False,
    ) -> int:  # fmt: skip
        """Removes dead letters for good; returns how many."""
        check_limit(limit)
        which = q.Filter(id, reason_contains)
        total = 0
        for place in await places(self, topic, subscription):
            await self._check_subscription(place, subscription)
            left = None if limit is None else limit - total
            if left == 0:
                break
            purge = q.PurgeDead(place, subscription, which, left, dry_run)
            total += int(await self._opened().ask(purge))
        return total

    async def stats(self) -> dict[str, Any]:
        """The broker in numbers."""
        found: dict[str, Any] = await self._opened().ask(q.Stats())
        return found

    async def confirm_time(self) -> None:
        """The broker's wall clock is right after its jump: expiry and retention go on."""
        await self._opened().ask(q.ConfirmTime())

    async def explain(
        self, topic: str, *, subscription: str | None = None, position: str | None = None,
        id: str | None = None, key: bytes | str | None = None, consumer: str | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """Why something does not move: a dict with `reason` (a stable code), `text` and details.

        Name a message by `position`, `id` or `key` (its oldest unfinished one), or a consumer, or
        nothing: then it is about what the subscription has to do next. Without a subscription,
        every durable one is asked. By id and by key all held messages are read, which may take
        long. Raises UnknownTopic, UnknownSubscription, InvalidArgument.
        """
        for name, value in (("position", position), ("id", id), ("consumer", consumer)):
            if value is not None and not isinstance(value, str):
                raise InvalidArgument(f"{name} must be text, not {value!r:.80}")
        question = q.Explain(
            topic=topic, subscription=subscription, position=position, id=id, key=key,
            consumer=consumer,
        )  # fmt: skip
        found: dict[str, Any] = await self._opened().ask(question)
        return found

    async def _check_subscription(self, topic: str, subscription: str) -> None:
        """Raises UnknownTopic, UnknownSubscription."""
        known = [row["subscription"] for row in await self.subscriptions(topic)]
        if subscription not in known:
            listed = ", ".join(map(repr, known)) or "none"
            raise UnknownSubscription(
                f"topic {topic!r} has no subscription {subscription!r}; it has: {listed}"
            )


async def places(client: Administration, topic: str, subscription: str) -> list[str]:
    """The topics of a subscription: the one that is named, or all that its pattern has now.

    Raises UnknownSubscription for a pattern without such a subscription.
    """
    if not is_pattern(topic):
        return [topic]
    rows = {row["subscription"]: row for row in await client.subscriptions(topic)}
    if subscription in rows:
        topics: list[str] = rows[subscription]["topics"]
        return topics
    listed = ", ".join(map(repr, rows)) or "none"
    raise UnknownSubscription(
        f"pattern {topic!r} has no subscription {subscription!r}; it has: {listed}; or name one "
        "topic that matches it"
    )


def made(kind: Any, fields: dict[str, Any]) -> Any:
    """A policy from what the caller gave. Raises InvalidArgument naming the wrong field."""
    known = kind.__struct_fields__
    for name in fields:
        if name not in known:
            raise InvalidArgument(f"there is no setting {name!r}; known: {', '.join(known)}")
    try:
        return msgspec.convert(msgspec.to_builtins(fields), kind)
    except (msgspec.ValidationError, TypeError) as error:
        raise InvalidArgument(f"wrong setting: {error}{_choices(kind, fields)}") from error


def _choices(kind: Any, fields: dict[str, Any]) -> str:
    """What may be chosen for a field whose value is none of its choices."""
    types = get_type_hints(kind)
    for name, value in fields.items():
        choice = types[name]
        if isinstance(choice, type) and issubclass(choice, StrEnum) and value not in list(choice):
            return f"; {name} is one of {', '.join(map(repr, map(str, choice)))}"
    return ""


def check_partitions(partitions: int) -> None:
    """Raises InvalidArgument unless it is a whole number."""
    if isinstance(partitions, bool) or not isinstance(partitions, int):
        raise InvalidArgument(f"partitions must be a whole number, not {partitions!r}")


def check_offset(name: str, offset: Any) -> None:
    """Raises InvalidArgument unless it is a number of messages from the start of a partition."""
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < OFFSET_MAX:
        raise InvalidArgument(
            f"{name} must be an offset, a whole number from 0, not {offset!r:.80}"
        )


def check_limit(limit: int | None, *, has_none: bool = True) -> None:
    """Raises InvalidArgument unless it is a number of messages; `has_none`: None is no limit."""
    if limit is None and has_none:
        return
    if not isinstance(limit, int) or isinstance(limit, bool) or limit < 1:
        raise InvalidArgument(f"limit must be a whole number from 1 on, not {limit!r}")


class Shown:
    """Where looked-at messages come from: they are leased to nobody and cannot be settled."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.unsent = 0
        self.unsent_max = 1

    def messages(self, partition: int, frame: Frame) -> list[ReceivedMessage]:
        """The messages of a frame."""
        start, end = frame.offsets[0], frame.offsets[-1] + 1
        hold = Hold(self, Slice(0, partition, start, end, 0, [frame]))
        found = list(Sheet(hold, frame).messages())
        for message in found:
            message.settle()
        return found

    def collect(self, hold: Hold) -> None:
        """Never called: the messages count as settled."""
        raise AssertionError(hold)

    def ack_up_to(self, message: ReceivedMessage) -> None:
        message.settle()

    def give_back(
        self, message: ReceivedMessage, _cause: Cause, _delay_s: float | None, _reason: str
    ) -> None:
        message.settle()

    def extend(self, message: ReceivedMessage, _seconds: float) -> None:
        message.settle()
