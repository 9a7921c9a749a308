"""What an operator does with a pipeline on Spark whose source is Kafka: look, and replay.

The pipeline's place is the group named by its subscription, and quarantine is a topic of that
Kafka. A replay is a transaction of Kafka's: the mended readings and how far the quarantine is done
are stored together or not at all, so each goes once, wherever a replay ends.
"""

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any, Final

from penstock.pipeline import operations
from penstock.pipeline.mending import Fix, is_anothers, mended
from penstock.pipeline.operations import Status
from penstock.pipeline.settings import Pipeline
from penstock.pipeline.spark import kafka_url
from penstock.pipeline.spark.kafka_link import Found, KafkaLink, Record
from penstock.pipeline.spark.kafka_rows import MORE
from penstock.vocabulary.errors import UnknownTopic
from penstock.vocabulary.message import Message

REPLAY_MAX: Final = 100_000
"""Messages of quarantine that one replay looks at."""
AT_ONCE: Final = 1_000
"""Messages of quarantine that are one transaction."""


def is_here(pipeline: Pipeline) -> bool:
    """Whether a pipeline keeps its place in Kafka as this module expects it."""
    return pipeline.settings.lane == "spark" and kafka_url.is_kafka(pipeline.url)


def status(pipeline: Pipeline) -> Status:
    """How far a pipeline is. Raises Unavailable."""
    with closing(_link(pipeline, pipeline.subscription)) as link:
        return operations.looked(pipeline, lag(pipeline, link))


def lag(pipeline: Pipeline, link: KafkaLink) -> int:
    """Offsets between the group and the end of the topic; the marks of transactions count too."""
    try:
        held = link.ends(pipeline.topic)
    except UnknownTopic:
        return 0
    known = link.committed(pipeline.topic)
    return sum(max(0, end - max(low, known.get(at, low))) for at, (low, end) in held.items())


def lowest_held(pipeline: Pipeline) -> dict[int, int]:
    """The lowest offset that Kafka holds of each partition. Raises UnknownTopic, Unavailable."""
    with closing(_link(pipeline, pipeline.subscription)) as link:
        return {at: low for at, (low, _) in link.ends(pipeline.topic).items()}


def replay(
    pipeline: Pipeline, fix: Fix | None = None, *, limit: int = REPLAY_MAX
) -> tuple[int, int]:
    """Sends quarantined messages through the pipeline again; returns (sent, left).

    Each goes once, however often this is repeated. What `fix` gives up on goes to the end of the
    quarantine topic, where the next replay finds it. Raises UnknownTopic when the source is not
    there, FixFailed.
    """
    name = f"penstock.{pipeline.name}.replay"
    sent = left = 0
    with closing(_link(pipeline, name)) as link:
        link.partitions(pipeline.topic)
        try:
            link.partitions(pipeline.quarantine)
        except UnknownTopic:
            return 0, 0  # nothing was refused yet
        # Before asking how far it is: another replay gets no further, and what the last one left
        # can be read.
        link.claim(name)
        held = link.settled(pipeline.quarantine)  # with what a run that has just ended refused
        done = link.committed(pipeline.quarantine)
        starts = {at: max(low, done.get(at, low)) for at, (low, _) in held.items()}
        while sent + left < limit:
            # What this replay itself puts behind the end it found is for the next one.
            starts = {at: start for at, start in starts.items() if start < held[at][1]}
            if not starts:
                break
            size = min(AT_ONCE, limit - sent - left)
            found, ends = link.read(pipeline.quarantine, starts, size)
            found = [each for each in found if each[1] < held[each[0]][1]]
            ends = {at: min(end, held[at][1]) for at, end in ends.items()}
            if ends == starts:
                break
            records = list(_records(pipeline, found, fix))
            if not link.publish(name, records, pipeline.quarantine, ends, name):
                break  # another replay has just done them
            good = sum(topic == pipeline.topic for topic, _, _ in records)
            sent += good
            left += len(records) - good
            starts = ends
    return sent, left


def _records(pipeline: Pipeline, found: list[Found], fix: Fix | None) -> Iterator[Record]:
    """Each message as it goes on: mended to the pipeline's topic, else to quarantine again."""
    for partition, offset, body, given in found:
        headers = opened(given)
        if is_anothers(headers, pipeline.name):
            continue
        id = f"{pipeline.name}/replay/{partition}-{offset}"
        where = f"{pipeline.quarantine}/{partition}:{offset}"
        message = mended(fix, body, headers, None, where)
        if message is not None:
            yield pipeline.topic, id, message
        else:
            yield pipeline.quarantine, id, Message(body=body, headers=headers)


def opened(headers: list[tuple[str, bytes]]) -> dict[str, str]:
    """The headers a message had before it became a record."""
    found = {name: (value or b"").decode(errors="replace") for name, value in headers}
    more = _tree(found.pop(MORE, "{}")).get("headers")
    if isinstance(more, dict):
        found |= {name: value for name, value in more.items() if isinstance(value, str)}
    return found


def _tree(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:  # some program's header
        return {}
    return found if isinstance(found, dict) else {}


def _link(pipeline: Pipeline, group: str) -> KafkaLink:
    return KafkaLink(kafka_url.parse(pipeline.url), group)
