"""A connection to NATS JetStream: streams, consumers, and what is sent."""

import logging
from collections.abc import Callable, Sequence
from math import ceil
from time import time
from typing import Any, Final
from uuid import uuid4

import msgspec

from penstock.drivers import capabilities
from penstock.drivers.foreign.address import Address
from penstock.drivers.foreign.carrier import (
    Feed,
    Outcome,
    Placed,
    Seat,
    Sender,
    SubscriptionRow,
    TopicRow,
    Traits,
)
from penstock.drivers.foreign.envelope import Letter, seal
from penstock.drivers.nats.connection import Ack, Connection, Row, check_version
from penstock.drivers.nats.consumers import (
    changed,
    delivery,
    durable,
    full_name,
    is_of,
    plain_name,
    subscription_row,
)
from penstock.drivers.nats.feed import SPARED, NatsFeed
from penstock.drivers.nats.notes import NOTES_STREAM, NatsNotes
from penstock.drivers.nats.streams import (
    NANO,
    Stream,
    altered,
    made,
    stream_in,
    topic_row,
)
from penstock.drivers.nats.subjects import safe_name, subject_of, topic_of
from penstock.vocabulary import names
from penstock.vocabulary.errors import (
    InvalidArgument,
    PenstockError,
    PositionNotHeld,
    UnknownSubscription,
    UnknownTopic,
    Unsupported,
)
from penstock.vocabulary.limits import BODY_BYTES_MAX
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy

log = logging.getLogger("penstock.drivers")

MESSAGE_ID: Final = "Nats-Msg-Id"
MESSAGE_TTL: Final = "Nats-TTL"
TTL_SINCE: Final = (2, 11)
SPARED_STREAM: Final = "penstock-spared"
SPARED_S: Final = 7 * 24 * 3600
EPHEMERAL_S: Final = 60
HEADER_SLACK: Final = 512
"""What the server's own headers may take of its largest message."""


async def connect(address: Address) -> "NatsCarrier":
    """A connection, proved to work.

    Raises InvalidArgument, Unavailable, AccessRefused, Unsupported.
    """
    if address.path.strip("/"):
        raise InvalidArgument(
            f"{address.text} has a path; a nats: URL names hosts only, topics are named in calls"
        )
    carrier = NatsCarrier(address)
    await carrier.open()
    return carrier


class NatsCarrier(NatsNotes):
    """One connection to NATS."""

    traits = Traits()

    def __init__(self, address: Address) -> None:
        self.capabilities = capabilities.NATS
        self.connection = Connection(address)
        self.replicas = int(address.options.get("replicas", 1))
        self._homes: dict[str, Stream] = {}
        """Topic → the stream that has its subject."""
        self._has_spared = False

    async def open(self) -> None:
        """Connects, and makes sure of what is needed there: JetStream, and a version."""
        await self.connection.open()
        try:
            check_version(self.connection.version, self.connection.text)
            await self.connection.check_jetstream()
        except BaseException:
            await self.connection.close()
            raise
        limit = min(BODY_BYTES_MAX, self.connection.payload_max - HEADER_SLACK)
        self.capabilities = msgspec.structs.replace(capabilities.NATS, message_bytes_max=limit)

    async def close(self) -> None:
        await self.connection.close()

    # -- sending ---------------------------------------------------------------------------------

    async def send(
        self,
        topic: str,
        letters: Sequence[Letter],
        sender: Sender | None,  # noqa: ARG002
    ) -> list[Placed]:
        rows = self._rows(await self.home_of(topic), topic, letters)
        return _placed(await self.connection.store(subject_of(topic), rows))

    def post(
        self, topic: str, letters: Sequence[Letter], sender: Sender,  # noqa: ARG002
        told: Callable[[Outcome], None],
    ) -> bool:  # fmt: skip
        """Begins to send; the outcome is told on the loop."""
        home = self._homes.get(topic)
        if home is None:
            return False

        def tell(outcome: list[Ack] | PenstockError) -> None:
            told(outcome if isinstance(outcome, PenstockError) else _placed(outcome))

        self.connection.post(subject_of(topic), self._rows(home, topic, letters), tell)
        return True

    @staticmethod
    def _rows(home: Stream, topic: str, letters: Sequence[Letter]) -> list[Row]:
        rows: list[Row] = []
        is_only = home.is_only(subject_of(topic))
        for letter in letters:
            headers = seal(letter)
            if letter.dedup:
                known = letter.dedup if letter.dedup.isascii() else headers["penstock-id"]
                # A stream looks at the ids of all its subjects together; ours are a topic's.
                headers[MESSAGE_ID] = known if is_only else f"{known} {safe_name(topic)}"
            if letter.expires_at and home.has_ttl:
                headers[MESSAGE_TTL] = f"{max(1, ceil(letter.expires_at / 1000 - time()))}s"
            rows.append((letter.body or b"", headers))
        return rows

    # -- consuming -------------------------------------------------------------------------------

    async def open_feed(self, seat: Seat) -> Feed:
        stream = await self.stream_of(seat.topic)
        if seat.subscription is None:
            consumer = f"penstock-{uuid4().hex}"
            await self.make_ephemeral(seat, stream, consumer, None)
        else:
            consumer, _ = await self.consumer_of(seat.topic, seat.subscription)
        feed = NatsFeed(self, seat, stream, consumer)
        await feed.open()
        return feed

    async def make_ephemeral(
        self, seat: Seat, stream: str, consumer: str, from_seq: int | None
    ) -> None:
        """A consumer that ends when nobody asks for its messages."""
        start = seat.start if from_seq is None else f"0:{from_seq}"
        config = {
            "name": consumer,
            "inactive_threshold": EPHEMERAL_S * NANO,
            **delivery(seat.topic, seat.policy),
            **await self._start(seat.topic, start, is_checked=from_seq is None),
        }
        await self.connection.api(
            f"CONSUMER.CREATE.{stream}.{consumer}", stream_name=stream, config=config
        )

    async def spare(self, stream: str, consumer: str, letters: Sequence[Letter]) -> None:
        """Notes that these deliveries never reached the application."""
        if not self._has_spared:
            config = {
                "name": SPARED_STREAM, "subjects": [f"{SPARED}.>"], "max_age": SPARED_S * NANO,
                "storage": "file", "retention": "limits", "discard": "old",
                "num_replicas": self.replicas,
            }  # fmt: skip
            await self.connection.api(f"STREAM.CREATE.{SPARED_STREAM}", **config)
            self._has_spared = True
        for letter in letters[:-1]:
            await self.connection.publish(f"{SPARED}.{stream}.{consumer}.{letter.offset}", b"")
        await self.connection.request(f"{SPARED}.{stream}.{consumer}.{letters[-1].offset}", b"")

    async def spared(self, stream: str, consumer: str) -> dict[int, int]:
        """How often each message was delivered without reaching the application."""
        prefix = f"{SPARED}.{stream}.{consumer}."
        try:
            info = await self.connection.api(
                f"STREAM.INFO.{SPARED_STREAM}", subjects_filter=f"{prefix}>"
            )
        except UnknownTopic:
            return {}
        found = info["state"].get("subjects") or {}
        return {int(subject.removeprefix(prefix)): count for subject, count in found.items()}

    # -- topics ----------------------------------------------------------------------------------

    async def home_of(self, topic: str) -> Stream:
        """The stream that has a topic's subject. Raises UnknownTopic."""
        known = self._homes.get(topic)
        return known if known is not None else stream_in((await self._info_of(topic))["config"])

    async def stream_of(self, topic: str) -> str:
        """The name of the stream that has a topic's subject. Raises UnknownTopic."""
        return (await self.home_of(topic)).name

    async def _info_of(self, topic: str) -> dict[str, Any]:
        """What the server tells of a topic's stream by now. Raises UnknownTopic."""
        try:
            info = await self._asked(topic)
        except UnknownTopic:
            self._homes.pop(topic, None)
            raise
        self._homes[topic] = stream_in(info["config"])
        return info

    async def _asked(self, topic: str) -> dict[str, Any]:
        subject = subject_of(topic)
        answer = await self.connection.api("STREAM.NAMES", subject=subject)
        found = answer.get("streams")
        if not found:
            raise UnknownTopic(f"no stream has the subject {subject!r} of topic {topic!r}")
        return await self.connection.api(f"STREAM.INFO.{found[0]}", subjects_filter=subject)

    async def find_topic(self, topic: str) -> TopicRow | None:
        try:
            return topic_row(topic, await self._info_of(topic))
        except UnknownTopic:
            return None

    async def put_topic(self, topic: str, partitions: int, policy: TopicPolicy) -> None:
        capabilities.check_topic_policy(self.capabilities, partitions, policy)
        await self._put_stream(topic, policy)

    async def ensure_dead(self, topic: str, bytes_max: int) -> None:
        """Creates a dead-letter topic when it is missing: it refuses what is over its size."""
        if topic not in self._homes and await self.find_topic(topic) is None:
            source, _, subscription = topic.partition(names.DEAD_MARK)
            policy = TopicPolicy(
                retain_s=None, dead_of=f"{source}\n{subscription}", max_bytes_refuse=bytes_max
            )
            await self._put_stream(topic, policy)

    async def _put_stream(self, topic: str, policy: TopicPolicy) -> None:
        """Makes the stream of a topic, or changes in it what the policy changes."""
        try:
            config = (await self._info_of(topic))["config"]
        except UnknownTopic:
            has_ttl = self.connection.version >= TTL_SINCE
            config = made(topic, policy, replicas=self.replicas, has_ttl=has_ttl)
            await self.connection.api(f"STREAM.CREATE.{config['name']}", **config)
        else:
            wanted = altered(config, policy)
            if wanted is None:
                return
            config = wanted
            if not self._homes[topic].is_only(subject_of(topic)):
                log.warning(
                    "the settings of topic %r hold for all subjects of stream %r: %s",
                    topic, config["name"], ", ".join(config["subjects"]),
                )  # fmt: skip
            await self.connection.api(f"STREAM.UPDATE.{config['name']}", **config)
        self._homes[topic] = stream_in(config)

    async def drop_topic(self, topic: str) -> None:
        stream = stream_in((await self._info_of(topic))["config"])
        if not stream.is_only(subject_of(topic)):
            raise Unsupported(
                f"topic {topic!r} is one of several in stream {stream.name!r}, which has "
                f"{', '.join(stream.subjects)}: nats: URLs delete a topic with its stream, and "
                "would delete the others too; delete its subscriptions, or delete the stream with "
                "the tools of NATS"
            )
        self._homes.pop(topic, None)
        await self.connection.api(f"STREAM.DELETE.{stream.name}")

    async def list_topics(self) -> list[TopicRow]:
        found: list[TopicRow] = []
        for info in await self._pages("STREAM.LIST", "streams"):
            if info["config"]["name"] in (SPARED_STREAM, NOTES_STREAM):
                continue
            for subject in info["config"].get("subjects") or ():
                topic = topic_of(subject)
                if topic is None:
                    continue
                if stream_in(info["config"]).is_only(subject):
                    found.append(topic_row(topic, info))
                    continue
                row = await self.find_topic(topic)  # with what is counted for its subject
                found += [row] if row is not None else []
        return found

    async def _pages(self, name: str, field: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        while True:
            answer = await self.connection.api(name, offset=len(found))
            rows = answer.get(field) or []
            found += rows
            if not rows or len(found) >= answer.get("total", 0):
                return found

    # -- subscriptions ---------------------------------------------------------------------------

    async def consumer_of(self, topic: str, subscription: str) -> tuple[str, dict[str, Any] | None]:
        """The name of a subscription's consumer, and its configuration; None = it is not there.

        Raises UnknownTopic.
        """
        stream = await self.home_of(topic)
        plain, full = plain_name(subscription), full_name(topic, subscription)
        is_free = True
        for name in (plain, full):
            try:
                info = await self.connection.api(f"CONSUMER.INFO.{stream.name}.{name}")
            except UnknownSubscription:
                continue
            if is_of(info["config"], stream, topic):
                return name, info["config"]
            is_free = False
        return plain if is_free and stream.is_only(subject_of(topic)) else full, None

    async def list_subscriptions(self, topic: str) -> list[SubscriptionRow]:
        try:
            stream = await self.home_of(topic)
            rows = await self._pages(f"CONSUMER.LIST.{stream.name}", "consumers")
        except UnknownTopic:
            return []
        return [
            subscription_row(topic, row)
            for row in rows
            if row["config"].get("durable_name") and is_of(row["config"], stream, topic)
        ]

    async def put_subscription(
        self, topic: str, name: str, policy: SubscriptionPolicy, start: Any
    ) -> None:
        stream = await self.stream_of(topic)
        consumer, known = await self.consumer_of(topic, name)
        if start is None:
            await self.connection.api(
                f"CONSUMER.CREATE.{stream}.{consumer}", stream_name=stream, action="update",
                config=changed(_found(topic, name, known), name, policy),
            )  # fmt: skip
            return
        config = {
            **durable(consumer, topic, name, policy),
            **await self._start(topic, start, is_checked=True),
        }
        await self.connection.api(
            f"CONSUMER.CREATE.{stream}.{consumer}", stream_name=stream, config=config
        )

    async def drop_subscription(self, topic: str, name: str) -> None:
        stream = await self.stream_of(topic)
        consumer, known = await self.consumer_of(topic, name)
        _found(topic, name, known)
        await self.connection.api(f"CONSUMER.DELETE.{stream}.{consumer}")

    async def seek(self, topic: str, name: str, to: Any) -> None:
        start = await self._start(topic, to, is_checked=True)
        stream = await self.stream_of(topic)
        consumer, known = await self.consumer_of(topic, name)
        config = {
            key: value
            for key, value in _found(topic, name, known).items()
            if not key.startswith("opt_start")
        }
        await self.connection.api(f"CONSUMER.DELETE.{stream}.{consumer}")
        await self.connection.api(
            f"CONSUMER.CREATE.{stream}.{consumer}", stream_name=stream, config={**config, **start}
        )

    async def _start(self, topic: str, start: Any, *, is_checked: bool) -> dict[str, Any]:
        """Where a new consumer begins, in the words of JetStream."""
        if start == "earliest":
            return {"deliver_policy": "all"}
        if start == "latest":
            return {"deliver_policy": "new"}
        if isinstance(start, int | float) and not isinstance(start, bool):
            return {"deliver_policy": "by_start_time", "opt_start_time": _rfc3339(float(start))}
        partition, mark, number = str(start).partition(":")
        if not (mark and partition == "0" and number.isdecimal()):
            raise InvalidArgument(
                f"start {start!r} is neither 'earliest', 'latest', Unix seconds nor a position "
                "such as '0:17'"
            )
        if is_checked:
            state = (await self.connection.api(f"STREAM.INFO.{await self.stream_of(topic)}"))[
                "state"
            ]
            if not state["first_seq"] <= int(number) <= state["last_seq"]:
                lowest = f"0:{state['first_seq']}"
                raise PositionNotHeld(
                    f"topic {topic!r} does not hold position {start!r}; the lowest is {lowest!r}; "
                    "'earliest' and 'latest' are always held",
                    lowest=lowest,
                )
        return {"deliver_policy": "by_start_sequence", "opt_start_seq": max(1, int(number))}


def _placed(acks: list[Ack]) -> list[Placed]:
    return [Placed(ack.seq, f"0:{ack.seq}", ack.is_duplicate) for ack in acks]


def _rfc3339(seconds: float) -> str:
    from datetime import UTC, datetime  # noqa: PLC0415

    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")


def _found(topic: str, name: str, config: dict[str, Any] | None) -> dict[str, Any]:
    if config is None:
        raise UnknownSubscription(f"topic {topic!r} has no subscription {name!r}")
    return config
