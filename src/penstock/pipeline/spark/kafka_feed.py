"""Messages of a Kafka topic, through Spark's own connector: the same pipeline, the same ledger.

Spark plans offsets and reads the records; the workers get them as Arrow and do the row work. The
group named by the subscription is committed after the tables, so that Kafka's tools see the lag.
"""

import json
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any, Final

import pyarrow as pa

from penstock.pipeline import messages, rules
from penstock.pipeline.datasets.features import TOPIC as FEATURES
from penstock.pipeline.datasets.features import Features, said
from penstock.pipeline.ledger import Ledger, Range
from penstock.pipeline.refusals import CountsDiffer
from penstock.pipeline.settings import Pipeline
from penstock.pipeline.spark import kafka_beginning, kafka_rows, kafka_url, workers
from penstock.pipeline.spark.feed import Offsets
from penstock.pipeline.spark.kafka_link import KafkaLink, Record
from penstock.pipeline.spark.workers import Outcome, Plan, Priors
from penstock.pipeline.work import Quarantined

EARLIEST: Final = -2
"""What Spark calls the beginning of a partition."""


class KafkaFeed:
    """A topic of Kafka."""

    def __init__(self, pipeline: Pipeline, ledger: Ledger) -> None:
        self._pipeline = pipeline
        self._ledger = ledger
        self._rules = rules.fingerprint(pipeline)
        self._url = kafka_url.parse(pipeline.url)
        self._link: KafkaLink | None = None
        self._topic_id: str | None = None
        self._spark: Any = None
        self._features = Features()
        self._version = -1
        self._ready: set[str] = set()

    @staticmethod
    def look(pipeline: Pipeline) -> None:
        """Finds the topic, and lets go of it. Raises Unavailable, UnknownTopic."""
        with closing(KafkaLink(kafka_url.parse(pipeline.url), pipeline.subscription)) as link:
            link.partitions(pipeline.topic)

    def open(self) -> None:
        """Finds the topic. Raises SourceDiffers when it is not the one that was read."""
        pipeline = self._pipeline
        self._link = KafkaLink(self._url, pipeline.subscription)
        self._link.partitions(pipeline.topic)
        self._topic_id = self._link.topic_id(pipeline.topic)
        kafka_beginning.check_topic(pipeline, self._ledger, self._topic_id)
        kafka_beginning.choose_epoch(self._link, pipeline, self._ledger)

    @property
    def link(self) -> KafkaLink:
        """The driver's connections."""
        assert self._link is not None
        return self._link

    def progress(self) -> Offsets:
        """The beginning of what Kafka holds."""
        return {at: low for at, (low, _) in self.link.ends(self._pipeline.topic).items()}

    def begin(self, ends: Offsets) -> Offsets:
        """Kafka can be read from anywhere."""
        return self.progress() | ends

    def check(self, need: Offsets, upto: Offsets) -> None:
        """Compares with what Kafka holds."""
        held = self.link.ends(self._pipeline.topic)
        kafka_beginning.check_held(self._pipeline, need, upto, held)

    def stream(self, spark: Any, initial: Offsets) -> Any:
        """Spark's own connector."""
        self._spark = spark
        topic = self._pipeline.topic
        kafka_beginning.note_topic(self._pipeline, self._topic_id)
        starts = {str(at): initial.get(at, EARLIEST) for at in self.link.partitions(topic)}
        given = {
            "subscribe": topic,
            "startingOffsets": json.dumps({topic: starts}),
            "maxOffsetsPerTrigger": str(self._pipeline.settings.max_rows_per_batch),
            "minPartitions": str(spark.sparkContext.defaultParallelism),
        }
        return spark.readStream.format("kafka").options(**self._options(), **given)

    def work(
        self, frame: Any, plan: Plan, ranges: list[Range],  # noqa: ARG002 - the frame has them
    ) -> list[Outcome]:  # fmt: skip
        """The records of each task, as Arrow."""

        def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return kafka_rows.worked(plan, batches)

        rows = kafka_rows.selected(frame).mapInArrow(work, kafka_rows.RETURNED).collect()
        pipeline = self._pipeline  # its topic may have been made anew under the query's hands
        kafka_beginning.check_same(pipeline, self._topic_id, self.link.topic_id(pipeline.topic))
        return [workers.decode(bytes(row.outcome)) for row in rows]

    def work_again(self, plan: Plan, done: Outcome, priors: Priors) -> Outcome:
        """Reads the records of the range again, here."""
        topic = self._pipeline.topic
        given = {
            "assign": json.dumps({topic: [done.partition]}),
            "startingOffsets": json.dumps({topic: {str(done.partition): done.start}}),
            "endingOffsets": json.dumps({topic: {str(done.partition): done.end}}),
        }
        frame = self._spark.read.format("kafka").options(**self._options(), **given).load()
        table = kafka_rows.selected(frame).sort("offset").toArrow()
        (found,) = kafka_rows.outcomes_of(plan, table.to_batches(), priors)
        return found

    def check_cover(self, outcomes: list[Outcome], ranges: list[Range], where: str) -> None:
        """No offset was done twice or outside the ledger. Kafka's offsets have gaps of their own.

        That none is left out is Spark's to tell, which fails a query that loses records.
        """
        wanted = {at: (start, end) for at, start, end in ranges}
        before: dict[int, int] = {}
        for each in sorted(outcomes, key=lambda one: (one.partition, one.start)):
            start, end = wanted.get(each.partition, (0, 0))
            if each.start < max(start, before.get(each.partition, 0)) or each.end > end:
                did = [(one.partition, one.start, one.end) for one in outcomes]
                raise CountsDiffer(f"{where}: the tasks did {did}, the ledger has {ranges}")
            before[each.partition] = each.end

    def report(self, ends: Offsets) -> None:
        """Commits the group."""
        topic = self._pipeline.topic
        known = self.link.committed(topic)
        self.link.commit(topic, {at: end for at, end in ends.items() if known.get(at, -1) < end})

    def features(self) -> tuple[int, Features]:
        """From the topic of features; what is no list of features leaves the last ones in force."""
        for offset, body in self.link.bodies_behind(FEATURES, self._version):
            self._version, self._features = offset, said(body, self._features)
        return self._version, self._features

    def publish(
        self, refused: list[Quarantined], events: pa.Table, rows: pa.Table | None,
        ranges: list[Range],
    ) -> None:  # fmt: skip
        """One transaction for each batch; done again under other rules, another one."""
        records = self._records(refused, events, rows)
        if not records:
            return
        pipeline = self._pipeline
        for topic in {topic for topic, _, _ in records} - self._ready:
            self.link.ensure_topic(topic, is_kept=topic == pipeline.quarantine)
            self._ready.add(topic)
        ends = {partition: end for partition, _, end in ranges}
        group = kafka_beginning.group_of(pipeline, self._ledger.epoch)
        name = kafka_beginning.producer_of(pipeline)
        self.link.publish(name, records, pipeline.topic, ends, group, self._rules)

    def _records(
        self, refused: list[Quarantined], events: pa.Table, rows: pa.Table | None
    ) -> list[Record]:
        pipeline = self._pipeline
        whose = [each.partition for each in refused]
        kept = messages.quarantine(pipeline.name, pipeline.topic, refused)
        stages: list[tuple[str, str, Iterable[tuple[int, messages.Numbered]]]] = [
            ("quarantine", pipeline.quarantine, zip(whose, kept, strict=True)),
            ("events", pipeline.events, messages.events(pipeline.topic, events)),
        ]
        if pipeline.publish is not None:
            stages.append(("publish", pipeline.publish, messages.forwarded(pipeline.dataset, rows)))
        return [
            (topic, f"{pipeline.name}/{stage}/{partition}-{number}", message)
            for stage, topic, found in stages
            for partition, (number, message) in found
        ]

    def close(self) -> None:
        """Lets go of Kafka."""
        if self._link is not None:
            self._link.close()
            self._link = None

    def _options(self) -> dict[str, str]:
        return {
            **self._url.for_spark(),
            "includeHeaders": "true",
            "failOnDataLoss": "true",
            "kafka.isolation.level": "read_committed",
        }
