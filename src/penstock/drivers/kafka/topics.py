"""Kafka topics as topics: their shape, and what of a policy Kafka can keep.

Kafka removes by time or size, whoever has acked. So `max_age_s` is its retention; `retain_s` and
`replay_s` are kept by keeping everything for a week, or longer when they ask for longer.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from penstock.drivers import capabilities
from penstock.drivers.foreign.carrier import TopicRow
from penstock.drivers.kafka.link import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    IsolationLevel,
    Link,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    TopicCollection,
    TopicPartition,
)
from penstock.drivers.kafka.look import Looking, Span, place_of
from penstock.drivers.kafka.names import is_hidden, kafka_name, topic_name
from penstock.drivers.kafka.settings import SETTLED_S_MAX
from penstock.drivers.port import Capabilities
from penstock.vocabulary import names
from penstock.vocabulary.errors import (
    InvalidArgument,
    InvalidName,
    PositionNotHeld,
    TopicExists,
    Unavailable,
    UnknownTopic,
    Unsupported,
)
from penstock.vocabulary.limits import RETAIN_S_DEFAULT
from penstock.vocabulary.message import Durability
from penstock.vocabulary.policy import TopicPolicy

WEEK_S: Final = 7 * 24 * 3600.0
SEEN_S: Final = 10.0
"""How long a topic that was made or deleted may take until every broker knows."""
SETTLED_PAUSE_S: Final = 0.05
ENDED_S_MAX: Final = 15.0
"""How long a partition may take to learn that a transaction has ended."""
COUNTED_MAX: Final = 10_000
"""Dead letters that are counted one by one."""


def kept_policy(policy: TopicPolicy) -> TopicPolicy:
    """What of a policy can be read from a Kafka topic."""
    if policy.dead_of is not None:
        return TopicPolicy(retain_s=None, dead_of=policy.dead_of)
    age_s = policy.max_age_s
    if age_s is None and policy.retain_s is not None:
        is_usual = policy.retain_s == RETAIN_S_DEFAULT and not policy.replay_s
        age_s = None if is_usual else max(WEEK_S, policy.retain_s, policy.replay_s)
    retain_s = None if policy.retain_s is None and age_s is None else RETAIN_S_DEFAULT
    return TopicPolicy(
        retain_s=retain_s, max_age_s=age_s, max_bytes=policy.max_bytes, keep_last=policy.keep_last
    )


def config_of(policy: TopicPolicy) -> dict[str, str]:
    """The settings of a Kafka topic that keep a policy."""
    kept = kept_policy(policy)
    found: dict[str, str] = {}
    if kept.max_age_s is not None:
        found["retention.ms"] = str(int(kept.max_age_s * 1000))
    elif kept.retain_s is None:
        found["retention.ms"] = "-1"
    if kept.max_bytes is not None:
        found["retention.bytes"] = str(kept.max_bytes)
    if kept.dead_of is not None:
        found["cleanup.policy"] = "compact,delete"
    elif kept.keep_last:
        found["cleanup.policy"] = "compact"
    return found


def policy_of(topic: str, config: Mapping[str, str]) -> TopicPolicy:
    """The policy a topic's own settings keep."""
    if names.is_dead_topic(topic):
        source, _, subscription = topic.partition(names.DEAD_MARK)
        return TopicPolicy(retain_s=None, dead_of=f"{source}\n{subscription}")
    age = int(config.get("retention.ms", 0))
    size = int(config.get("retention.bytes", -1))
    return TopicPolicy(
        retain_s=None if age < 0 else RETAIN_S_DEFAULT,
        max_age_s=age / 1000 if age > 0 else None,
        max_bytes=size if size > 0 else None,
        keep_last=1 if "compact" in config.get("cleanup.policy", "") else 0,
    )


class Topics(Looking):
    """The part of a carrier that administers topics."""

    link: Link
    capabilities: Capabilities

    def __init__(self) -> None:
        super().__init__()
        self._parts: dict[str, int] = {}
        """Kafka topic → its partitions, as they were last seen."""
        self._least: dict[str, int] = {}
        """Kafka topic → min.insync.replicas."""
        self._compacted: set[str] = set()
        self._ended: dict[tuple[str, int], tuple[int, float]] = {}
        """Where units of this client end in each partition, and until when they may be hidden."""

    def kept_policy(self, policy: TopicPolicy) -> TopicPolicy:
        return kept_policy(policy)

    def level_of(self, topic: str) -> Durability:
        settings = self.link.settings
        return settings.level(self._least.get(kafka_name(topic), settings.least))

    def is_compacted(self, topic: str) -> bool:
        """True when a message without body would remove others."""
        return kafka_name(topic) in self._compacted

    def _note_cleanup(self, name: str, config: Mapping[str, str]) -> None:
        is_compacted = "compact" in config.get("cleanup.policy", "")
        (self._compacted.add if is_compacted else self._compacted.discard)(name)

    async def find_topic(self, topic: str) -> TopicRow | None:
        rows = await self._rows([kafka_name(topic)])
        if not rows:
            return None
        if names.is_dead_topic(topic) and 0 < (rows[0].messages or 0) <= COUNTED_MAX:
            # What was removed is still in the log for a while.
            return rows[0]._replace(messages=len(await self.look(topic, COUNTED_MAX, None)))
        return rows[0]

    async def list_topics(self) -> list[TopicRow]:
        return await self._rows(await self._names())

    async def topic_names(self) -> list[str]:
        return [topic_name(name) for name in await self._names()]

    async def _names(self) -> list[str]:
        told = await self.link.run(lambda: self.link.admin.list_topics(timeout=SEEN_S))
        return [name for name in told.topics if not is_hidden(name)]

    async def _rows(self, listed: list[str]) -> list[TopicRow]:
        counts = await self._counts(listed)
        if not counts:
            return []
        configs = await self._configs(counts)
        spans = await self._spans(counts)
        found: list[TopicRow] = []
        for name, partitions in counts.items():
            config, own = configs.get(name, ({}, {}))
            self._least[name] = int(config.get("min.insync.replicas", 1))
            self._note_cleanup(name, config)
            topic = topic_name(name)
            policy = policy_of(topic, own)
            if self.level_of(topic) is Durability.WRITTEN is not self.capabilities.durability:
                policy = msgspec.structs.replace(policy, durability=Durability.WRITTEN)
            held = [span.end - span.start for span in spans[name].values()]
            end = sum(span.end for span in spans[name].values())
            found.append(TopicRow(topic, policy, partitions, sum(held), 0, end))
        return found

    async def _counts(self, listed: Iterable[str]) -> dict[str, int]:
        """Partitions of those topics that exist."""
        asked = list(listed)
        if not asked:
            return {}
        futures = self.link.admin.describe_topics(TopicCollection(asked))
        found: dict[str, int] = {}
        for name, future in futures.items():
            try:
                found[name] = len((await self.link.ask(future)).partitions)
            except UnknownTopic:
                self._parts.pop(name, None)
        self._parts |= found
        return found

    async def partitions_of(self, topic: str) -> int:
        """How many partitions a topic has. Raises UnknownTopic."""
        name = kafka_name(topic)
        known = self._parts.get(name)
        if known is None:
            known = (await self._counts([name])).get(name)
        if known is None:
            raise UnknownTopic(f"there is no topic {topic!r}")
        return known

    async def _configs(
        self, listed: Iterable[str]
    ) -> dict[str, tuple[dict[str, str], dict[str, str]]]:
        """All settings of each topic, and those that are its own."""
        asked = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in listed]
        found: dict[str, tuple[dict[str, str], dict[str, str]]] = {}
        for resource, future in self.link.admin.describe_configs(asked).items():
            try:
                entries = await self.link.ask(future)
            except UnknownTopic:
                continue
            every = {name: entry.value for name, entry in entries.items()}
            own = {name: e.value for name, e in entries.items() if e.source == _OWN_SOURCE}
            found[resource.name] = every, own
        return found

    # -- making and deleting -----------------------------------------------------------------------

    async def put_topic(self, topic: str, partitions: int, policy: TopicPolicy) -> None:
        capabilities.check_topic_policy(self.capabilities, 1, policy)
        if policy.keep_last > 1:
            raise Unsupported(
                f"kafka: topics keep the last message of a key, not the last {policy.keep_last}: "
                "set keep_last to 1 or leave it out"
            )
        name = kafka_name(topic)
        there = (await self._counts([name])).get(name)
        if there is None:
            await self.make_topic(topic, partitions, self.link.settings.shape.copies, policy)
            return
        wanted = config_of(policy)
        entries = [
            ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
            for key, value in wanted.items()
        ]
        entries += [
            ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE)
            for key in _POLICY_KEYS
            if key not in wanted
        ]
        resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
        for future in self.link.admin.incremental_alter_configs([resource]).values():
            await self.link.ask(future)
        await self._until_set(name, wanted)
        self._note_cleanup(name, wanted)
        if partitions > there:
            for future in self.link.admin.create_partitions(
                [NewPartitions(name, partitions)]
            ).values():
                await self.link.ask(future)
            await self._until(name, partitions)
            await self.link.refresh(name)

    async def make_topic(
        self, topic: str, partitions: int, copies: int, policy: TopicPolicy
    ) -> None:
        """Makes a topic; one that is there already stays as it is. Raises Unsupported."""
        name = kafka_name(topic)
        least = self.link.settings.least_of(copies)
        config = {**config_of(policy), "min.insync.replicas": str(least)}
        new = NewTopic(name, partitions, copies, config=config)
        try:
            for future in self.link.admin.create_topics([new]).values():
                await self.link.ask(future)
        except TopicExists:
            pass
        except Unsupported as error:
            raise await self._too_few(topic, partitions, copies, error) from error
        except InvalidName as error:
            raise InvalidName(
                f"Kafka refuses topic {topic!r}: {error.text}; it takes '.' and '_' for the same "
                "letter, choose another name"
            ) from error
        self._least[name] = least
        self._note_cleanup(name, config)
        await self._until(name, partitions)

    async def _too_few(
        self, topic: str, partitions: int, copies: int, error: Unsupported
    ) -> Unsupported:
        cluster = await self.link.ask(self.link.admin.describe_cluster())
        brokers = len(cluster.nodes)
        if brokers >= copies:
            return error
        return Unsupported(
            f"topic {topic!r} is to have {copies} copies and {self.link.where} has {brokers} "
            f"broker(s): start more, or write ?topics={partitions}:{brokers} in the URL"
        )

    async def _until(self, name: str, partitions: int | None) -> None:
        """Returns when the brokers say what was asked for."""
        ends = self.link.loop.time() + SEEN_S
        while (await self._counts([name])).get(name) != partitions:
            if self.link.loop.time() > ends:
                return
            await asyncio.sleep(0.02)

    async def _until_set(self, name: str, wanted: Mapping[str, str]) -> None:
        """Returns when the brokers tell these settings: the controller confirms them before."""
        ends = self.link.loop.time() + SEEN_S
        while True:
            _, own = (await self._configs([name])).get(name, ({}, {}))
            if {key: own[key] for key in _POLICY_KEYS if key in own} == wanted:
                return
            if self.link.loop.time() > ends:
                return
            await asyncio.sleep(0.02)

    async def drop_topic(self, topic: str) -> None:
        name = kafka_name(topic)
        for future in self.link.admin.delete_topics([name]).values():
            await self.link.ask(future)
        self._least.pop(name, None)
        await self._until(name, None)

    async def ensure_dead(self, topic: str) -> None:
        """Makes a dead-letter topic when it is missing."""
        if kafka_name(topic) not in self._parts and await self.find_topic(topic) is None:
            policy = policy_of(topic, {})
            await self.make_topic(topic, 1, self.link.settings.shape.copies, policy)
        self._compacted.add(kafka_name(topic))

    async def drop_records(self, topic: str, ends: Mapping[int, int]) -> None:
        places = [TopicPartition(kafka_name(topic), part, end) for part, end in ends.items()]
        for future in self.link.admin.delete_records(places).values():
            await self.link.ask(future)

    # -- places ------------------------------------------------------------------------------------

    async def spans_of(self, topics: Iterable[str]) -> dict[str, dict[int, Span]]:
        """What each partition of many topics holds."""
        counts = {kafka_name(topic): await self.partitions_of(topic) for topic in topics}
        return {topic_name(name): each for name, each in (await self._spans(counts)).items()}

    async def spans(self, topic: str) -> dict[int, Span]:
        name = kafka_name(topic)
        return (await self._spans({name: await self.partitions_of(topic)}))[name]

    async def _spans(self, counts: Mapping[str, int]) -> dict[str, dict[int, Span]]:
        places = [(name, part) for name, count in counts.items() for part in range(count)]
        low = await self._offsets(places, _spec("earliest"))
        high = await self._seen(places)
        found: dict[str, dict[int, Span]] = {name: {} for name in counts}
        for name, part in places:
            start = max(low.get((name, part), 0), 0)
            found[name][part] = Span(start, max(high.get((name, part), 0), start))
        return found

    def note_ended(self, topic: str, partition: int, end: int) -> None:
        """A unit of this client has ended; what it stored in this partition lies below `end`."""
        last, _ = self._ended.get((topic, partition), (0, 0.0))
        until = self.link.loop.time() + ENDED_S_MAX
        self._ended[topic, partition] = max(last, end), until

    async def _seen(self, places: list[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """The end of what can be seen of each partition, with what this client's units stored.

        Kafka confirms a transaction before its partitions know that it has ended. Until they do,
        they hide what it stored, and whatever is stored behind that.
        """
        while True:
            found = await self._offsets(places, _spec("latest"))
            now, is_hidden = self.link.loop.time(), False
            for place in self._ended.keys() & found.keys():
                end, until = self._ended[place]
                if found[place] < end and now < until:
                    is_hidden = True
                else:
                    del self._ended[place]
            if not is_hidden:
                return found
            await asyncio.sleep(SETTLED_PAUSE_S)

    async def settled(self, topic: str, partition: int) -> dict[int, Span]:
        """What a partition holds, once every transaction begun before now has ended.

        One that was left open by a process that died hides all that is stored behind it, until
        Kafka aborts it.
        """
        place = (kafka_name(topic), partition)
        known = IsolationLevel.READ_UNCOMMITTED
        high = (await self._offsets([place], _spec("latest"), known)).get(place, 0)
        until = self.link.loop.time() + SETTLED_S_MAX
        while True:
            spans = {at: span for at, span in (await self.spans(topic)).items() if at == partition}
            is_settled = all(span.end >= high for span in spans.values())
            if is_settled or self.link.loop.time() > until:
                return spans
            await asyncio.sleep(SETTLED_PAUSE_S)

    async def _offsets(
        self, places: Iterable[tuple[str, int]], spec: Any,
        isolation: IsolationLevel = IsolationLevel.READ_COMMITTED,
    ) -> dict[tuple[str, int], int]:  # fmt: skip
        found: dict[tuple[str, int], int] = {}
        asked = list(places)
        ends = self.link.loop.time() + SEEN_S
        while asked:
            futures = self.link.admin.list_offsets(
                {TopicPartition(name, part): spec for name, part in asked},
                isolation_level=isolation,
            )
            again: list[tuple[str, int]] = []
            for place, future in futures.items():
                try:
                    found[place.topic, place.partition] = (await self.link.ask(future)).offset
                except UnknownTopic:
                    continue  # it was deleted meanwhile
                except Unavailable:  # a new partition, or one whose leader has just died
                    if self.link.loop.time() > ends:
                        raise
                    again.append((place.topic, place.partition))
            asked = again
            if asked:
                await asyncio.sleep(0.02)
        return found

    async def offsets_at(self, topic: str, start: Any) -> dict[int, int]:
        """Where each partition begins. Raises PositionNotHeld, InvalidArgument."""
        spans = await self.spans(topic)
        if start == "earliest":
            return {part: span.start for part, span in spans.items()}
        if start == "latest":
            return {part: span.end for part, span in spans.items()}
        if isinstance(start, bool):
            raise InvalidArgument(f"start {start!r} is neither a time nor a position")
        if isinstance(start, int | float):
            return await self._since(topic, spans, int(start * 1000))
        part, offset = place_of(start)
        if part not in spans or not spans[part].start <= offset < spans[part].end:
            lowest = f"{part}:{spans[part].start}" if part in spans else "0:0"
            raise PositionNotHeld(
                f"topic {topic!r} does not hold position {start!r}; the lowest is {lowest!r}; "
                "'earliest' and 'latest' are always held",
                lowest=lowest,
            )
        if len(spans) == 1:
            return {part: offset}
        # The other partitions begin where they were at that time.
        found = await self.looker.read(topic, {part: Span(offset, spans[part].end)}, 1, 1)
        at = found[part][0].timestamp()[1] if found[part] else 0
        return {**await self._since(topic, spans, at), part: offset}

    async def _since(self, topic: str, spans: Mapping[int, Span], at_ms: int) -> dict[int, int]:
        name = kafka_name(topic)
        spec = OffsetSpec.for_timestamp(at_ms)
        told = await self._offsets([(name, part) for part in spans], spec)
        return {
            part: span.end if told.get((name, part), -1) < 0 else told[name, part]
            for part, span in spans.items()
        }


_POLICY_KEYS: Final = ("retention.ms", "retention.bytes", "cleanup.policy")
_OWN_SOURCE: Final = 1
"""Of a setting: it was given to this topic."""


def _spec(which: str) -> Any:
    return getattr(OffsetSpec, which)()
