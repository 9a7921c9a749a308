"""What the driver asks Kafka itself: where topics end, how far it is; and what it publishes.

Everything a batch publishes is one transaction, which also notes where the batch ends. So a batch
that is done again knows whether its messages are out: exactly once, from Kafka to Kafka.
"""

import json
import re
import sys
import time
from collections.abc import Iterable
from contextlib import closing
from typing import Any, Final

from penstock.pipeline.spark.kafka_url import KafkaUrl
from penstock.pipeline.spark.refusals import KafkaMissing
from penstock.vocabulary.errors import StorageError, Unavailable, UnknownTopic
from penstock.vocabulary.message import Message

ASK_S: Final = 15.0
"""How long Kafka may take to answer."""
PUBLISH_S: Final = 60.0
RECORD_BYTES_MAX: Final = 64 * 1024 * 1024
"""A refused reading may be larger than its record was: its reasons travel with it."""
RESERVED: Final = ("penstock-", "nats-", "body")
_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")

MOVING: Final = (
    "NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS",
)  # fmt: skip
"""What Kafka says for a moment, when a topic is new or a node is gone."""
MOVING_S: Final = 0.1
NOTES_MAX: Final = 100
"""Notes of one end: Kafka takes 4,096 bytes with it."""
NO_ID: Final = "AAAAAAAAAAAAAAAAAAAAAA"
"""The id of every topic, where Kafka is older than ids are."""

Offsets = dict[int, int]
Ends = dict[int, tuple[int, int]]
"""The lowest offset and the end of each partition."""
Noted = dict[int, tuple[int, str]]
"""Offset and notes of each partition."""
Record = tuple[str, str, Message]
"""Topic, id and message."""
Found = tuple[int, int, bytes | None, list[tuple[str, bytes]]]
"""Partition, offset, body and headers of a stored record."""


class KafkaLink:
    """The driver's connections to one Kafka. Raises Unavailable, UnknownTopic."""

    def __init__(self, url: KafkaUrl, group: str) -> None:
        try:
            import confluent_kafka  # noqa: PLC0415 - only kafka: sources need it
            from confluent_kafka import TopicCollection, admin  # noqa: PLC0415
            from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415
        except ImportError as error:
            raise KafkaMissing(
                "confluent-kafka is not installed, which a kafka: source needs; install penstock "
                "with its extra 'kafka'"
            ) from error
        self._kafka = confluent_kafka
        self._settings: dict[str, Any] = {
            **url.for_python(), "log_level": 0, "socket.timeout.ms": int(ASK_S * 1000)
        }  # fmt: skip
        self._text = f"kafka://{url.servers}"
        self._admin = admin.AdminClient(self._settings)
        self._new_topic = NewTopic
        self._topics = TopicCollection
        self._reader = self._consumer(group)
        self._producers: dict[str, Any] = {}
        self._looked: dict[str, int] = {}
        """Where `bodies_behind` has read to."""

    def ends(self, topic: str) -> Ends:
        """The lowest offset and the end of each partition."""
        return self._ends(self._reader, topic)

    def settled(self, topic: str) -> Ends:
        """The same, once the transactions that began before now have ended, or after a while.

        Kafka confirms a transaction before its partitions know that it has ended. Until they do,
        they hide what it stored, and whatever is stored behind that.
        """
        level = {"isolation.level": "read_uncommitted"}
        with closing(self._consumer("penstock.looking", level)) as reader:
            stored = self._ends(reader, topic)
        until = time.monotonic() + ASK_S
        while True:
            found = self.ends(topic)
            is_settled = all(found[at][1] >= end for at, (_, end) in stored.items())
            if is_settled or time.monotonic() > until:
                return found
            time.sleep(MOVING_S)

    def _ends(self, reader: Any, topic: str) -> Ends:
        found: Ends = {}
        for at in self.partitions(topic):
            place = self._kafka.TopicPartition(topic, at)
            low, high = self._asked(reader.get_watermark_offsets, place, timeout=ASK_S)
            found[at] = (low, high)
        return found

    def partitions(self, topic: str) -> list[int]:
        """The partitions of a topic. Raises UnknownTopic."""
        # Asked by a consumer: when anybody else asks for a topic, Kafka makes it.
        told = self._asked(self._reader.list_topics, topic, timeout=ASK_S).topics[topic]
        if told.error is not None:
            if told.error.code() == self._kafka.KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise UnknownTopic(f"{self._text} has no topic {topic!r}; create it first")
            raise Unavailable(f"{self._text}, topic {topic!r}: {told.error.str()}")
        return sorted(told.partitions)

    def topic_id(self, topic: str) -> str | None:
        """The id that Kafka gave a topic when it was made; None on one that gives none."""
        (told,) = self._admin.describe_topics(self._topics([topic])).values()
        found = str(self._asked(told.result, ASK_S).topic_id)
        return None if found == NO_ID else found

    def commit(self, topic: str, ends: Offsets) -> None:
        """Notes how far the group is, where every tool for Kafka sees it."""
        places = [self._kafka.TopicPartition(topic, at, end) for at, end in sorted(ends.items())]
        if places:
            self._asked(self._reader.commit, offsets=places, asynchronous=False)

    def committed(self, topic: str, group: str | None = None) -> Offsets:
        """How far a group is; the reader's own when none is named."""
        return {at: offset for at, (offset, _) in self.noted(topic, group).items()}

    def has_committed(self, topic: str, group: str) -> bool:
        """Whether a group was ever committed; a transaction under way is not waited for."""
        return bool(self.noted(topic, group, {"isolation.level": "read_uncommitted"}))

    def noted(
        self, topic: str, group: str | None = None, more: dict[str, Any] | None = None
    ) -> Noted:
        """How far a group is, and what was noted with that."""
        reader = self._reader if group is None else self._consumer(group, more)
        try:
            places = [self._kafka.TopicPartition(topic, at) for at in self.partitions(topic)]
            found = self._asked(reader.committed, places, timeout=ASK_S)
        finally:
            if group is not None:
                reader.close()
        return {
            each.partition: (each.offset, each.metadata or "") for each in found if each.offset >= 0
        }

    def bodies_behind(self, topic: str, after: int) -> list[tuple[int, bytes | None]]:
        """Offset and body of the records of partition 0 behind offset `after`, in their order."""
        try:
            low, high = self.ends(topic)[0]
        except UnknownTopic:
            return []
        start = max(low, after + 1, self._looked.get(topic, 0))
        if high <= start:
            return []
        found, ends = self.read(topic, {0: start}, sys.maxsize)
        self._looked[topic] = ends[0]  # behind markers of transactions, which are no records
        return [(offset, body) for _, offset, body, _ in found]

    def read(self, topic: str, starts: Offsets, most: int) -> tuple[list[Found], Offsets]:
        """Committed records from these offsets on, at most so many; and where the next ones are."""
        found: list[Found] = []
        ends = dict(starts)
        left = set(starts)
        reader = self._consumer("penstock.looking", {"enable.partition.eof": True})
        try:
            reader.assign([self._kafka.TopicPartition(topic, at, starts[at]) for at in left])
            while left and len(found) < most:
                record = self._asked(reader.poll, ASK_S)
                if record is None:
                    raise Unavailable(
                        f"{self._text} does not answer: topic {topic!r} gives nothing"
                    )
                error, at, offset = record.error(), record.partition(), record.offset()
                if error is None:
                    found.append((at, offset, record.value(), record.headers() or []))
                    ends[at] = offset + 1
                elif error.code() == self._kafka.KafkaError._PARTITION_EOF:  # noqa: SLF001
                    ends[at] = offset
                    left.discard(at)
                else:
                    raise Unavailable(f"{self._text}, topic {topic!r}: {error.str()}")
        finally:
            reader.close()
        return found, ends

    def ensure_topic(self, topic: str, *, is_kept: bool) -> None:
        """Creates a topic of the pipeline's own when it is missing."""
        try:
            self.partitions(topic)
        except UnknownTopic:
            config = {"max.message.bytes": str(RECORD_BYTES_MAX)}
            if is_kept:
                config["retention.ms"] = "-1"
            wanted = self._new_topic(topic, 1, -1, config=config)
            (made,) = self._admin.create_topics([wanted], operation_timeout=ASK_S).values()
            try:
                self._asked(made.result, ASK_S)
            except Unavailable as error:
                if _name_of(error) != "TOPIC_ALREADY_EXISTS":  # by another run
                    raise
            self._wait_for(topic)

    def _wait_for(self, topic: str) -> None:
        """Returns when Kafka knows a topic, which is a moment after it was made."""
        until = time.monotonic() + ASK_S
        while True:
            try:
                self.partitions(topic)
                return
            except UnknownTopic:
                if time.monotonic() > until:
                    raise
            time.sleep(MOVING_S)

    def publish(
        self, name: str, records: Iterable[Record], source: str, ends: Offsets, group: str,
        note: str = "",
    ) -> bool:  # fmt: skip
        """Stores records and `ends` in one transaction; False when that was done before.

        `note`, a word, is stored with the ends: what was done under another one is done again.
        """
        # The producer comes first: it ends the transaction of a run that was killed in one.
        producer = self._producer(name)
        known = self.noted(source, group)
        if is_out(known, ends, note):
            return False
        failures: list[str] = []

        def landed(error: Any, _record: Any) -> None:
            if error is not None:
                failures.append(error.str())

        self._asked(producer.begin_transaction)
        try:
            for topic, id, message in records:
                self._produce(producer, topic, id, message, landed)
            reader = self._consumer(group)
            try:
                places = [
                    self._kafka.TopicPartition(source, at, end, joined_note(known, at, end, note))
                    for at, end in ends.items()
                ]
                told = reader.consumer_group_metadata()
                self._asked(producer.send_offsets_to_transaction, places, told, PUBLISH_S)
            finally:
                reader.close()
            self._asked(producer.commit_transaction, PUBLISH_S)
        except Exception as error:
            self._producers.pop(name)
            if failures and not self._is_fenced(error.__cause__):
                raise StorageError(f"{self._text} did not take a message: {failures[0]}") from error
            raise
        return True

    def claim(self, name: str) -> None:
        """What another process publishes under this name from now on fails."""
        self._producer(name)

    def close(self) -> None:
        """Lets go of everything. Doing so twice is harmless."""
        self._producers.clear()
        self._reader.close()

    def _produce(self, producer: Any, topic: str, id: str, message: Message, landed: Any) -> None:
        while True:
            try:
                producer.produce(
                    topic, value=message.body, key=message.key, headers=sealed(id, message),
                    on_delivery=landed,
                )  # fmt: skip
            except BufferError:
                self._asked(producer.poll, 0.1)
            except self._kafka.KafkaException as error:
                kind = Unavailable if self._is_fenced(error) else StorageError
                raise kind(f"{self._text}, topic {topic!r}: {error.args[0].str()}") from error
            else:
                self._asked(producer.poll, 0)
                return

    def _is_fenced(self, error: BaseException | None) -> bool:
        """Whether a producer is of no use any more, since a newer run has its name."""
        if not isinstance(error, self._kafka.KafkaException):
            return False
        told = error.args[0]
        return bool(told.fatal()) or told.code() == self._kafka.KafkaError._FATAL  # noqa: SLF001

    def _producer(self, name: str) -> Any:
        """A producer of transactions, which fences an older run's."""
        if name not in self._producers:
            producer = self._kafka.Producer(
                {
                    **self._settings, "transactional.id": name, "enable.idempotence": True,
                    "message.max.bytes": RECORD_BYTES_MAX, "partitioner": "murmur2_random",
                    "linger.ms": 5,
                }
            )  # fmt: skip
            self._asked(producer.init_transactions, PUBLISH_S)
            self._producers[name] = producer
        return self._producers[name]

    def _consumer(self, group: str, more: dict[str, Any] | None = None) -> Any:
        return self._kafka.Consumer(
            {
                **self._settings, "group.id": group, "enable.auto.commit": False,
                "auto.offset.reset": "error", "isolation.level": "read_committed",
                "allow.auto.create.topics": False, **(more or {}),
            }
        )  # fmt: skip

    def _asked(self, ask: Any, *given: Any, **options: Any) -> Any:
        """What Kafka answers; leaders that move are waited for. Raises Unavailable."""
        ends = time.monotonic() + ASK_S
        while True:
            try:
                return ask(*given, **options)
            except self._kafka.KafkaException as error:
                told = error.args[0]
                if told.name() not in MOVING or time.monotonic() > ends:
                    raise Unavailable(f"{self._text} does not answer: {told.str()}") from error
            time.sleep(MOVING_S)


def _name_of(error: Unavailable) -> str:
    """What Kafka calls an error."""
    cause = error.__cause__
    return str(cause.args[0].name()) if cause is not None else ""


def is_out(known: Noted, ends: Offsets, note: str) -> bool:
    """Whether everything up to these ends was stored under this note; an empty one fits all."""
    for at, end in ends.items():
        offset, notes = known.get(at, (-1, ""))
        if offset < end or (note and notes and note not in notes.split()):
            return False
    return True


def joined_note(known: Noted, at: int, end: int, note: str) -> str:
    """What is noted with an end: also whatever that very end was stored under before."""
    offset, notes = known.get(at, (-1, ""))
    before = notes.split()[1 - NOTES_MAX :] if offset == end else []
    return " ".join([*before, note]).strip()


def sealed(id: str, message: Message) -> list[tuple[str, bytes]]:
    """The headers of a record, as every foreign broker of ours has them."""
    found = {"penstock-id": id}
    more: dict[str, str] = {}
    for name, value in (message.headers or {}).items():
        is_plain = _TOKEN.fullmatch(name) is not None and not name.lower().startswith(RESERVED)
        is_plain = is_plain and value.isascii() and value.isprintable() and value == value.strip()
        (found if is_plain and value else more)[name] = value
    if more:
        found["penstock-more"] = json.dumps({"headers": more})
    return [(name, value.encode()) for name, value in found.items()]
