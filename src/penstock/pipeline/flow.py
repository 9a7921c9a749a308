"""The in-process lane: from a topic into tables, each message once, in one Python process.

    Consumer    makes a Subscriber and gives it its `listen`
    Subscriber  plans a batch, writes it into the ledger, reads it and calls `listen`
    Consumer    validates and analyses, then calls `produce`
    Producer    transforms, has every Storage write the rows, has the Publisher forward them
    Storage     puts rows into a repository, each batch once
    Publisher   sends refused readings, events and rows to their topics

Order of a batch: planned, ledger synced, read, files written, refused and events published, table
committed and synced, progress reported. A run that dies anywhere in between does the same batch
again, with the same ranges, features and table versions, and the result is as if it had not died.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, Self, TypeVar

import msgspec
import pyarrow as pa
from xxhash import xxh3_128_hexdigest

from penstock.client.client import Client, connect
from penstock.client.identified import Numbered
from penstock.client.reader import Reader
from penstock.pipeline import counting, holding, messages, rules, work
from penstock.pipeline.beginning import choose_epoch, publisher_of
from penstock.pipeline.counting import Counts
from penstock.pipeline.datasets import topics
from penstock.pipeline.datasets.events import conflicts
from penstock.pipeline.datasets.features import Features, FeatureView
from penstock.pipeline.datasets.topics import REPLAY_S
from penstock.pipeline.ledger import ADVICE, Entry, Ledger, Range, identity_of, judge
from penstock.pipeline.reading import raw_of
from penstock.pipeline.refusals import CheckpointAhead
from penstock.pipeline.repositories.choose import open_repository
from penstock.pipeline.repositories.compaction import compact, is_due
from penstock.pipeline.repositories.files import DataFile, write_files
from penstock.pipeline.repositories.known import Known, marks_of
from penstock.pipeline.repositories.port import TableStorage, WriteId
from penstock.pipeline.rewinding import rewind
from penstock.pipeline.settings import AVAILABLE_NOW, Pipeline
from penstock.vocabulary.message import Kind, Message

log = logging.getLogger("penstock.pipeline")

PAUSE_S: Final = 0.05
"""Between two looks at a topic that had nothing new."""
NUMBER_MAX: Final = (1 << 63) - 1
"""The largest number of a published message."""
T = TypeVar("T")

At = Callable[[str], None]
"""Told each named moment of a batch; tests end the process there."""


class Batch(NamedTuple):
    """One batch in hand: its entry in the ledger and its messages."""

    application: str
    entry: Entry
    raws: list[pa.RecordBatch]
    ends: dict[int, int]
    """Where every partition ends once it is stored, not only those it has messages of."""

    @property
    def write_id(self) -> WriteId:
        """What tables know it by."""
        return WriteId(self.application, self.entry.batch)

    @property
    def features(self) -> Features:
        """The features it is processed with, whenever that is."""
        return msgspec.convert(self.entry.features.get("active", {}), Features)


# -- Subscriber -------------------------------------------------------------------------------


class Subscriber:
    """Takes batches from a topic by a reader and a ledger, one after the other."""

    def __init__(
        self, pipeline: Pipeline, client: Client, ledger: Ledger, tables: dict[str, TableStorage],
        listen: Callable[[Batch], Awaitable[Any]], at: At,
    ) -> None:  # fmt: skip
        self._pipeline = pipeline
        self._client = client
        self._ledger = ledger
        self._tables = tables
        self._listen = listen
        self._at = at
        self._features = FeatureView(client)
        self._reader: Reader | None = None
        self._ends: dict[int, int] = {}

    async def start(self) -> None:
        """Opens the reader, which fences an older run, and finishes what that left undone."""
        pipeline = self._pipeline
        last = self._ledger.last
        lacking = [
            root
            for root, table in self._tables.items()
            if judge(self._ledger, root, table.last(pipeline.name))
        ]
        await ensure_source(self._client, pipeline)
        await choose_epoch(self._client, pipeline, self._ledger)
        self._reader = await holding.open_reader(
            self._client, pipeline, holding.new_owner(pipeline), is_new=last is None
        )
        if last is not None and last.batch < 0:
            await self._skip_to(last.ends())
        self._ends = await self._reader.progress()
        if last is None or last.batch < 0:
            return
        if lacking:
            self._check_unreported(last, lacking)
        await holding.check_planned(self._client, self._reader, pipeline, last.ranges)
        if lacking:
            await self._process(last)
        else:
            holding.check_reached(pipeline, last.ends(), self._ends)
            self._ends |= last.ends()
            await self._report(last)

    def _check_unreported(self, last: Entry, lacking: list[str]) -> None:
        """Refuses tables that lack a batch which was reported as stored in them."""
        done = [at for at, start, _ in last.ranges if self._ends.get(at, 0) > start]
        if done:
            raise CheckpointAhead(
                f"table {', '.join(lacking)} lacks batch {last.batch} of "
                f"{self._ledger.application!r}, which was stored: the broker was told so. Put the "
                f"table back, or {ADVICE}"
            )

    async def once(self) -> bool:
        """Processes one batch; False when there is nothing new."""
        assert self._reader is not None
        settings = self._pipeline.settings
        # From the progress on: an older plan may hold more than a batch takes, and where numbers
        # have gaps only the broker knows how many messages lie between two of them.
        planned = await self._reader.plan(
            settings.max_rows_per_batch, settings.max_bytes_per_batch,
            after=await self._reader.progress(),
        )  # fmt: skip
        if not planned:
            return False
        self._at("range planned")
        await self._features.read()  # now: no message of the batch is newer than they are
        entry = Entry(
            self._ledger.epoch, self._ledger.next_batch(), list(planned),
            {
                "version": self._features.version,
                "active": msgspec.to_builtins(self._features.features),
            },
            {root: table.version for root, table in self._tables.items()},
            rules.fingerprint(self._pipeline),
        )  # fmt: skip
        self._ledger.record(entry)
        self._at("ledger written")
        await self._process(entry)
        return True

    async def _process(self, entry: Entry) -> None:
        assert self._reader is not None
        raws: list[pa.RecordBatch] = []
        for partition, start, end in entry.ranges:
            async for batch in self._reader.batches(partition, start, end):
                raws += raw_of(batch)
        self._at("range read")
        ends = self._ends | entry.ends()
        await self._listen(Batch(f"{self._pipeline.name}/{entry.epoch}", entry, raws, ends))
        self._ends = ends
        await self._report(entry)
        self._at("progress reported")

    async def _report(self, entry: Entry) -> None:
        """Tells the broker how far the tables are, unless it knows."""
        assert self._reader is not None
        progress = await self._reader.progress()
        ends = {at: end for at, end in entry.ends().items() if progress.get(at, 0) < end}
        if ends:
            await self._reader.commit(ends)

    async def _skip_to(self, ends: dict[int, int]) -> None:
        """A new epoch: what lies before these offsets is in the tables, and nothing else is."""
        assert self._reader is not None
        await holding.check_ends(self._client, self._pipeline, ends)
        self._reader = await rewind(self._client, self._reader, ends)
        progress = await self._reader.progress()
        if any(progress.get(at, 0) < end for at, end in ends.items()):
            await self._reader.plan(None, None)
            await self._reader.commit(
                {at: end for at, end in ends.items() if progress.get(at, 0) < end}
            )


# -- Consumer ---------------------------------------------------------------------------------


class Consumer:
    """A pipeline that runs in this process. `async with Consumer(pipeline) as consumer`."""

    def __init__(
        self, pipeline: Pipeline, client: Client | None = None, at: At = lambda _: None
    ) -> None:
        self.pipeline = pipeline
        self.counts = Counts()
        self.batches = 0
        self._own_client = client is None
        self._client = client if client is not None else connect(pipeline.url)
        self._at = at
        self._ledger: Ledger | None = None
        self._tables: dict[str, TableStorage] = {}
        self._stopping = asyncio.Event()
        self.subscriber: Subscriber | None = None

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _open(self) -> None:
        pipeline = self.pipeline
        self._ledger = Ledger(Path(pipeline.checkpoint), identity_of(pipeline))
        for url, folder in zip(pipeline.repositories, pipeline.folders(), strict=True):
            self._tables[folder] = open_repository(url, pipeline.table, pipeline.dataset)
        await self._client.open()
        publisher = Publisher(self._client, pipeline, self._ledger)
        self.producer = Producer(pipeline, self._tables, publisher, self._at)
        self.subscriber = Subscriber(
            pipeline, self._client, self._ledger, self._tables, self.listen, self._at
        )
        await self.subscriber.start()

    async def close(self) -> None:
        """Lets go of tables, checkpoint and broker."""
        for table in self._tables.values():
            table.close()
        if self._ledger is not None:
            self._ledger.close()
        if self._own_client:
            await self._client.close()

    def stop(self) -> None:
        """Ends `run` after the batch in hand."""
        self._stopping.set()

    async def run(self) -> Counts:
        """Processes batches as the trigger says: until nothing is new, or until `stop`."""
        assert self.subscriber is not None
        trigger = self.pipeline.trigger
        while not self._stopping.is_set():
            if await self.subscriber.once():
                if not isinstance(trigger, float):
                    continue
            elif trigger == AVAILABLE_NOW:
                break
            pause = trigger if isinstance(trigger, float) else PAUSE_S
            try:
                await asyncio.wait_for(self._stopping.wait(), pause)
            except TimeoutError:
                continue
        return self.counts

    async def listen(self, batch: Batch) -> Counts:
        """Validates and analyses a batch, and has it produced."""
        checked = await in_thread(
            work.check, self.pipeline.dataset, batch.raws,
            ranges=batch.features.has_validation, limits=self.pipeline.limits,
        )  # fmt: skip
        counts = await self.producer.produce(batch, checked)
        self.counts.add(counts)
        self.batches += 1
        return counts


# -- Producer ---------------------------------------------------------------------------------


class Producer:
    """Makes rows of valid messages and has them stored, once in each repository."""

    def __init__(
        self, pipeline: Pipeline, tables: dict[str, TableStorage], publisher: "Publisher", at: At
    ) -> None:
        self._pipeline = pipeline
        self._tables = tables
        self._known = {root: Known(root, pipeline.dataset) for root in tables}
        self._publisher = publisher
        self._at = at

    async def produce(self, batch: Batch, checked: work.Checked) -> Counts:
        """Transforms, stores and publishes a batch. Raises CountsDiffer, StorageError."""
        made = await in_thread(work.make, self._pipeline.dataset, checked.good)
        # A table that has the batch is left alone: its files may have been merged since.
        missing = {
            root: table
            for root, table in self._tables.items()
            if not table.is_committed(batch.write_id)
        }
        is_first = len(missing) == len(self._tables)  # else a run before this one published
        first: Counts | None = None
        for root, table in missing.items():
            counts, new, found = await in_thread(self._sift, root, table, batch, checked, made)
            where = f"batch {batch.entry.batch} of {batch.application}, table {root}"
            counts.check(where)
            added = await in_thread(self._write, root, table, new, made)
            counts.check_written(where, added)
            self._at("files written")
            if first is None:
                first = counts
                first.events = len(found)
                if is_first:
                    ranges = batch.entry.ranges
                    await self._publisher.publish(checked.quarantined, found, new, ranges)
                    self._at("published")
                    await in_thread(self._note, batch, first)
            ends = {str(at): end for at, end in sorted(batch.ends.items())}
            source = {"topic": self._pipeline.topic, "ends": ends}
            await in_thread(table.commit, added, batch.write_id, source)
            self._at("table committed")
            await in_thread(self._compact, table)
        return first or Counts()

    def _note(self, batch: Batch, counts: Counts) -> None:
        """Writes the counts of a batch down, before any table has it."""
        line = counting.note(Path(self._pipeline.checkpoint), batch.write_id, counts)
        if batch.features.has_logging:
            log.info("pipeline %s: %s", self._pipeline.name, line)

    def _sift(
        self, root: str, table: TableStorage, batch: Batch, checked: work.Checked, made: work.Made
    ) -> tuple[Counts, pa.Table, pa.Table]:
        """The new rows, as seen from the version the ledger names, and the events about them."""
        files = table.files(batch.entry.tables.get(root))
        sifted = self._known[root].sift(made.rows, made.marks, files)
        new = made.rows if sifted.is_new.all() else made.rows.filter(pa.array(sifted.is_new))
        clashing = made.rows.filter(pa.array(sifted.is_conflict))
        counts = Counts(checked.read, len(new), len(checked.quarantined), sifted.duplicate)
        found = pa.concat_tables(
            [
                about_new(checked.events, made.rows, ~sifted.is_new),
                conflicts(clashing, self._pipeline.dataset.keys),
            ]
        )
        return counts, new, found

    def _write(
        self, root: str, table: TableStorage, new: pa.Table, made: work.Made
    ) -> list[DataFile]:
        """Writes the files of a batch."""
        dataset = self._pipeline.dataset
        rows = new.select(dataset.schema.names)
        added = write_files(table.root, table.staging(), dataset, rows)
        if len(added) == 1:
            marks = made.marks if len(new) == len(made.rows) else marks_of(rows, dataset)
            self._known[root].note(added[0], marks)
        return added

    def _compact(self, table: TableStorage) -> None:
        settings = self._pipeline.settings
        target = settings.compact_target_mb * 1024 * 1024
        limits = (settings.compact_files, settings.compact_after_s)
        if is_due(table, target, *limits, time.time()):
            compact(table, target)


def about_new(found: pa.Table, rows: pa.Table, is_old: Any) -> pa.Table:
    """Events without those of duplicates, which were told when the reading came first."""
    if not is_old.any() or not len(found):
        return found
    old = rows.filter(pa.array(is_old)).select(["_partition", "_offset"])
    return found.join(old, ["_partition", "_offset"], join_type="left anti")


# -- Publisher --------------------------------------------------------------------------------


class Publisher:
    """Sends what a pipeline has to say, numbered by source offset: exact on our own broker.

    A broker whose offsets are too large for that (Redis: a time and a count) gets ids made of them,
    which it remembers for a while: at least once.
    """

    def __init__(self, client: Client, pipeline: Pipeline, ledger: Ledger) -> None:
        self._client = client
        self._pipeline = pipeline
        self._ledger = ledger
        self._rules = rules.fingerprint(pipeline)
        self._topics: set[str] = set()
        self._starts: dict[int, int] = {}

    async def publish(
        self, refused: list[work.Quarantined], found: pa.Table, rows: pa.Table,
        ranges: Iterable[Range],
    ) -> None:  # fmt: skip
        """Sends refused readings, events and, when a topic is given, rows; durable at the end.

        A batch that is done again says the same, in the same order. So its messages are numbered
        one after the other from where its range starts, and go out in batches. Under other rules
        it may say something else, and is told apart.
        """
        pipeline = self._pipeline
        self._starts = {partition: start for partition, start, _ in ranges}
        quarantined = messages.quarantine(pipeline.name, pipeline.topic, refused)
        pairs = zip((each.partition for each in refused), quarantined, strict=True)
        await self._send("quarantine", pipeline.quarantine, list(pairs))
        told = list(messages.events(pipeline.topic, found))
        await self._send("events", pipeline.events, told)
        if pipeline.publish is not None:
            forwarded = messages.forwarded(pipeline.dataset, rows)
            await self._send("publish", pipeline.publish, list(forwarded))

    async def _send(
        self, stage: str, topic: str, numbered: list[tuple[int, messages.Numbered]]
    ) -> None:
        if not numbered:
            return
        if topic not in self._topics:
            if stage == "quarantine":
                await ensure_quarantine(self._client, self._pipeline)
            else:
                await ensure_topic(self._client, topic)
            self._topics.add(topic)
        numbered.sort(key=lambda each: (each[0], each[1][0]))
        for partition, group in groupby(numbered, key=lambda each: each[0]):
            name, epoch = publisher_of(self._pipeline, stage, partition), self._ledger.epoch
            said = [message for _, (_, message) in group]
            if self._ledger.last is None or self._ledger.last.rules != self._rules:
                name = rules.publisher_apart(name, self._rules, said)
            first = messages.number(self._starts[partition])
            if first > NUMBER_MAX:
                named = identified(f"{name}/{epoch}/{first}", said)
                await self._client.publish_many(topic, named)
                continue
            publisher = Numbered(self._client, topic, partition, publisher=name, epoch=epoch)
            await publisher.publish_run(first, said)


def identified(run: str, said: Iterable[Message]) -> list[Message]:
    """The messages of a run, each with an id that it has again when the run is repeated."""
    mark = xxh3_128_hexdigest(run.encode())
    return [msgspec.structs.replace(message, id=f"{mark}/{at}") for at, message in enumerate(said)]


_thread: Final = ThreadPoolExecutor(1, "penstock-pipeline")
"""Row work and files, of all pipelines of a process: one thread keeps one parser and its memory."""


async def in_thread(call: Callable[..., T], *given: Any, **options: Any) -> T:
    """Runs a call beside the event loop."""
    return await asyncio.get_running_loop().run_in_executor(
        _thread, partial(call, *given, **options)
    )


async def ensure_source(client: Client, pipeline: Pipeline) -> None:
    """Creates the topic that is read when it is missing, and says so: its name may be wrong."""
    if await ensure_topic(client, pipeline.topic):
        log.warning(
            "pipeline %s: there was no %s; the topic is made, and empty until somebody publishes "
            "to it", pipeline.name, pipeline.source,
        )  # fmt: skip


async def ensure_topic(client: Client, topic: str, retain_s: float | None = REPLAY_S) -> bool:
    """Creates a topic of a pipeline when it is missing, with its days of replay; tells if it did.

    A broker that cannot keep them for so long makes it as it can.
    """
    return await topics.ensure_topic(client, topic, replay_s=REPLAY_S, retain_s=retain_s)


async def ensure_quarantine(client: Client, pipeline: Pipeline) -> str:
    """Creates the topic of refused readings, and the reader of replays, which is named.

    That reader holds what was not replayed, whoever else reads the topic.
    """
    name = f"{pipeline.name}.replay"
    await ensure_topic(client, pipeline.quarantine, None)
    if client.capabilities.has_readers:
        known = {each["subscription"] for each in await client.subscriptions(pipeline.quarantine)}
        if name not in known:
            await client.create_subscription(pipeline.quarantine, name, kind=Kind.READER)
    return name
