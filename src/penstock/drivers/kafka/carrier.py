"""A connection to Kafka: sends, administers subscriptions, and opens consumers."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

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
    Traits,
)
from penstock.drivers.foreign.envelope import Letter
from penstock.drivers.foreign.plain import Place, Places, PlainLetters
from penstock.drivers.kafka.askers import Askers
from penstock.drivers.kafka.feed import KafkaFeed
from penstock.drivers.kafka.link import (
    ConfigResource,
    KafkaException,
    Link,
    TopicPartition,
    translated,
)
from penstock.drivers.kafka.look import Looker, place_of
from penstock.drivers.kafka.membership import client_ids
from penstock.drivers.kafka.names import OWN, check_group, kafka_name
from penstock.drivers.kafka.progress import GONE, Remembered, metadata_of, remembered
from penstock.drivers.kafka.readers import KafkaReaders
from penstock.drivers.kafka.records import dead_record_of, plain_records, record_of
from penstock.drivers.kafka.settings import Settings, settings_of
from penstock.drivers.kafka.topics import Topics
from penstock.drivers.kafka.units import KafkaUnits
from penstock.drivers.port import Capabilities
from penstock.vocabulary import names
from penstock.vocabulary.errors import (
    PenstockError,
    SubscriptionInUse,
    Unavailable,
    UnknownTopic,
    Unsupported,
)
from penstock.vocabulary.limits import BODY_BYTES_MAX, DEAD_BYTES_MAX_DEFAULT
from penstock.vocabulary.policy import SubscriptionPolicy, TopicPolicy

log = logging.getLogger("penstock.drivers")

ASK_S: Final = 3.0
RECORD_SLACK: Final = 512
"""What Kafka's own fields may take of its largest message."""


async def connect(address: Address) -> "KafkaCarrier":
    """A connection, proved to work. Raises Unavailable, AccessRefused, InvalidArgument."""
    settings = settings_of(address)
    carrier = KafkaCarrier(settings)
    try:
        await carrier.open(min(ASK_S, address.connect_s))
    except BaseException:
        await carrier.close()
        raise
    return carrier


class KafkaCarrier(Topics, KafkaReaders, KafkaUnits):
    """One connection to Kafka."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self.capabilities: Capabilities = msgspec.structs.replace(
            capabilities.KAFKA,
            durability=settings.level(settings.least),
            partitions_usual=settings.shape.partitions,
        )
        self.traits = Traits(
            has_leases=False, is_keyed_here=True, has_own_map=True,
            partitions_usual=settings.shape.partitions, takes_plain=True,
            # Without acks of all it is no idempotent producer, whose repeats keep their order.
            orders_posts=settings.acks == "all",
        )  # fmt: skip
        self.link = Link(settings)
        self.looker = Looker(self.link)
        self.askers = Askers(self.link)

    async def open(self, ask_s: float) -> None:
        """Asks the cluster what it takes, and makes the topics of the URL."""
        self.link.start_producer(BODY_BYTES_MAX)  # first of all: it takes a while to be ready
        try:
            cluster = await self.link.ask(self.link.admin.describe_cluster(request_timeout=ask_s))
        except Unavailable as error:
            raise Unavailable(f"{error} {self.link.handshake}".rstrip()) from error
        self.link.is_open = True
        limit = min(BODY_BYTES_MAX, await self._largest(cluster.nodes[0].id) - RECORD_SLACK)
        self.capabilities = msgspec.structs.replace(self.capabilities, message_bytes_max=limit)
        for topic, shape in self.link.settings.startup:
            names.check_topic(topic)
            if await self.find_topic(topic) is None:
                await self.make_topic(topic, shape.partitions, shape.copies, TopicPolicy())

    async def _largest(self, broker: int) -> int:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(broker))
        try:
            for future in self.link.admin.describe_configs([resource]).values():
                entries = await self.link.ask(future)
                return int(entries["message.max.bytes"].value)
        except (PenstockError, KeyError):
            log.debug("%s does not tell its largest message", self.link.where)
        return BODY_BYTES_MAX

    async def close(self) -> None:
        await self.close_units()
        await self.close_readers()
        await self.looker.close()
        await self.askers.close()
        await self.link.close()

    # -- sending ---------------------------------------------------------------------------------

    async def send(
        self, topic: str, letters: Sequence[Letter], sender: Sender | None  # noqa: ARG002
    ) -> list[Placed]:  # fmt: skip
        self.check_bodies(topic, letters)
        make = dead_record_of if names.is_dead_topic(topic) else record_of
        places = await self.link.produce(kafka_name(topic), [make(each) for each in letters])
        return [Placed(offset, f"{part}:{offset}", partition=part) for part, offset in places]

    def post(
        self, topic: str, letters: Sequence[Letter], sender: Sender,  # noqa: ARG002
        told: Callable[[Outcome], None],
    ) -> bool:  # fmt: skip
        """Begins to send; the outcome is told on the loop."""
        if self.is_compacted(topic):
            return False  # bodies are looked at first

        def tell(outcome: list[Place] | PenstockError) -> None:
            told(outcome if isinstance(outcome, PenstockError) else Places(outcome))

        if isinstance(letters, PlainLetters):
            records = plain_records(letters.bodies, letters.id_start, letters.sequence)
        else:
            records = [record_of(each) for each in letters]
        self.link.post(kafka_name(topic), records, tell)
        return True

    def check_bodies(self, topic: str, letters: Sequence[Letter]) -> None:
        """Raises Unsupported for an absent body in a compacted topic."""
        if self.is_compacted(topic) and not names.is_dead_topic(topic):
            for letter in letters:
                if letter.body is None:
                    raise Unsupported(
                        f"topic {topic!r} keeps the last message of each key (it is compacted): "
                        "kafka: URLs cannot store a message without body there, it would delete "
                        "its key; send an empty body"
                    )

    async def open_feed(self, seat: Seat) -> Feed:
        feed = KafkaFeed(self, seat)
        await feed.open()
        return feed

    # -- subscriptions ---------------------------------------------------------------------------

    async def list_subscriptions(self, topic: str) -> list[SubscriptionRow]:
        return (await self._listed([topic], None))[topic]

    async def list_named(self, topic: str, name: str) -> list[SubscriptionRow]:
        return (await self._listed([topic], name))[topic]

    async def list_many(self, topics: list[str]) -> dict[str, list[SubscriptionRow]]:
        return await self._listed(topics, None)

    async def _listed(
        self, topics: list[str], name: str | None
    ) -> dict[str, list[SubscriptionRow]]:
        busy: dict[str, bool] = {}
        for group in await self.link.groups():
            base = group.group_id.partition(names.MEMBER_MARK)[0]
            if not group.group_id.startswith(OWN) and name in {None, base, group.group_id}:
                busy[group.group_id] = group.state.name != "EMPTY"
        found: dict[str, list[SubscriptionRow]] = {topic: [] for topic in topics}
        commits = await self._commits(topics, busy)
        spans = await self.spans_of({topic for _, topic in commits})
        for (group_id, topic), parts in commits.items():
            members = await self._members(group_id, topic) if busy[group_id] else []
            policy = next((each.policy for each in parts.values() if each.policy), {})
            waiting = sum(max(0, s.end - _end(parts.get(p))) for p, s in spans[topic].items())
            leased = sum(each.outstanding for each in parts.values())
            row = SubscriptionRow(
                topic, group_id, msgspec.convert(policy, SubscriptionPolicy), members, waiting,
                leased, None,
            )  # fmt: skip
            found[topic].append(row)
        return found

    async def commits(self, topic: str, group: str) -> dict[int, Remembered]:
        """What a group has committed in a topic, by partition."""
        return (await self._commits([topic], [group])).get((group, topic), {})

    async def _commits(
        self, topics: Iterable[str], groups: Iterable[str]
    ) -> dict[tuple[str, str], dict[int, Remembered]]:
        """What groups have committed in topics; those that have nothing are left out."""
        places: list[tuple[str, int]] = []
        by_name: dict[str, str] = {}
        for topic in topics:
            with suppress(UnknownTopic):
                count = await self.partitions_of(topic)
                by_name[kafka_name(topic)] = topic
                places += [(kafka_name(topic), part) for part in range(count)]
        listed = [TopicPartition(name, part) for name, part in places]
        asked = list(groups) if listed else []
        answers = await asyncio.gather(*(self.askers.committed(group, listed) for group in asked))
        found: dict[tuple[str, str], dict[int, Remembered]] = {}
        for group, answer in zip(asked, answers, strict=True):
            for place in answer:
                if place.error is not None:
                    raise translated(KafkaException(place.error), self.link.where)
                if place.offset >= 0:
                    parts = found.setdefault((group, by_name[place.topic]), {})
                    parts[place.partition] = remembered(place.offset, place.metadata)
        return {
            key: parts
            for key, parts in found.items()
            if not any(each.is_gone for each in parts.values())
        }

    async def _members(self, group: str, topic: str) -> list[str]:
        """The client ids of the consumers that have partitions of this topic."""
        name = kafka_name(topic)
        told = await self.link.group(group)
        return [] if told is None else client_ids(told, name)

    async def put_subscription(
        self, topic: str, name: str, policy: SubscriptionPolicy, start: Any
    ) -> None:
        check_group(name)
        if policy.dead_bytes_max != DEAD_BYTES_MAX_DEFAULT:
            raise Unsupported("kafka: URLs do not limit the size of dead-letter topics: leave "
                              "dead_bytes_max out")  # fmt: skip
        said: dict[str, Any] = msgspec.to_builtins(policy)
        if start is None:
            await self._check_unused(topic, name, "its settings are changed")
            parts = await self.commits(topic, name)
            placed = {
                part: (
                    told.floor,
                    metadata_of(told.floor, told.end, told.ranges, said, is_clean=told.is_clean),
                )
                for part, told in parts.items()
            }
        else:
            begins = await self.offsets_at(topic, start)
            placed = {part: (at, _fresh(at, said)) for part, at in begins.items()}
        await self._put_offsets(topic, name, placed)

    async def drop_subscription(self, topic: str, name: str) -> None:
        parts = await self.commits(topic, name)
        await self._put_offsets(topic, name, {p: (each.floor, GONE) for p, each in parts.items()})

    async def seek(self, topic: str, name: str, to: Any) -> None:
        await self._check_unused(topic, name, "it is moved")
        begins = await self.offsets_at(topic, to)
        if isinstance(to, str) and to not in {"earliest", "latest"}:
            part, offset = place_of(to)  # a position moves its own partition only
            begins = {part: offset}
        parts = await self.commits(topic, name)
        policy = next((each.policy for each in parts.values() if each.policy), {})
        placed = {part: (at, _fresh(at, policy)) for part, at in begins.items()}
        await self._put_offsets(topic, name, placed)

    async def _check_unused(self, topic: str, name: str, what: str) -> None:
        members = await self._members(name, topic)
        if members:
            raise SubscriptionInUse(
                f"subscription {name!r} of topic {topic!r} has {len(members)} consumer(s), which "
                f"commit over what others write: close them before {what}"
            )

    async def _put_offsets(
        self, topic: str, group: str, placed: dict[int, tuple[int, str]]
    ) -> None:
        """Commits for a group, also while it has members in other topics."""
        name = kafka_name(topic)
        places = [TopicPartition(name, p, at, metadata=said) for p, (at, said) in placed.items()]
        if await self.askers.commit(group, places):
            return
        try:
            await self.commit_for(group, places)
        except KafkaException as error:
            raise translated(error, self.link.where) from error


def _fresh(offset: int, policy: dict[str, Any]) -> str:
    return metadata_of(offset, offset, (), policy, is_clean=True)


def _end(told: Remembered | None) -> int:
    return 0 if told is None else told.end
