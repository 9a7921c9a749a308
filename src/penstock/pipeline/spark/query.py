"""A pipeline as a Spark query: `foreachBatch`, the ledger, the workers, one commit, progress.

Order of a batch: Spark plans the range and writes `offsets/N`; the ledger entry is synced; workers
read, validate, transform and write files; refused readings and events are published; the table is
committed and synced; Spark writes `commits/N`; progress is reported to the broker. Killed anywhere
in between, the next run does the same batch again, and the result is as if it had not died.
"""

import json
import logging
import secrets
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.client.client import Client
from penstock.client.reader import Reader
from penstock.pipeline.datasets.features import Features, FeatureView
from penstock.pipeline.flow import COUNTS, At, Counts, Publisher, ensure_topic
from penstock.pipeline.ledger import Entry, Identity, Ledger
from penstock.pipeline.ledger import judge as judge_table
from penstock.pipeline.repositories.choose import open_repository
from penstock.pipeline.repositories.compaction import chosen, compact
from penstock.pipeline.repositories.port import TableStorage, WriteId
from penstock.pipeline.rewinding import rewind
from penstock.pipeline.settings import ASAP, AVAILABLE_NOW, Pipeline
from penstock.pipeline.spark import joining, workers
from penstock.pipeline.spark.checkpoint import COMMITS, OFFSETS, SparkCheckpoint, judge
from penstock.pipeline.spark.failing import failure_of
from penstock.pipeline.spark.refusals import SourceDiffers
from penstock.vocabulary.errors import PenstockError, Unsupported

log = logging.getLogger("penstock.pipeline")

STOP_S_MAX: Final = 60.0
"""How long a stop waits for the batch in hand."""
PAUSE_S: Final = 0.02
NOT_UP: Final = "Python worker failed to connect back"
REVIVALS_MAX: Final = 20


class Stopped(PenstockError):
    """A batch that came after the wish to stop; the next run does it."""

    code = "stopped"


class SparkLane:
    """One pipeline that runs as a query. `call` runs a coroutine on the client's loop."""

    def __init__(
        self, pipeline: Pipeline, client: Client, call: Any, at: At = lambda _: None
    ) -> None:
        self.pipeline = pipeline
        self.counts = Counts()
        self.batches = 0
        self.failed: BaseException | None = None
        self.query: Any = None
        self._client = client
        self._call = call
        self._at = at
        self._owner = secrets.token_hex(8)
        self._ledger: Ledger | None = None
        self._tables: dict[str, TableStorage] = {}
        self._features = FeatureView(client)
        self._guard = threading.Lock()
        self._reporting = threading.Lock()
        self._is_stopping = False
        self._done = -1
        """The newest batch that is stored."""
        self._reported = -1
        self._revivals = 0

    # -- open and start ----------------------------------------------------------------------

    def open(self) -> None:
        """Checks everything that can be checked before any data moves. Raises refusals."""
        pipeline = self.pipeline
        if pipeline.settings.writer != "penstock":
            raise Unsupported(
                f'[pipeline.{pipeline.name}] has writer = "{pipeline.settings.writer}", which '
                'this version does not have: leave it out, or say writer = "penstock"'
            )
        folders = pipeline.folders()
        identity = Identity(pipeline.name, pipeline.source, folders)
        ledger = self._ledger = Ledger(Path(pipeline.checkpoint), identity)
        for url, folder in zip(pipeline.repositories, folders, strict=True):
            self._tables[folder] = open_repository(url, pipeline.table, pipeline.dataset)
        lacking = [  # a list: every table is judged
            judge_table(ledger, root, table.last(pipeline.name))
            for root, table in self._tables.items()
        ]
        self._reader: Reader = self._call(self._open_reader())
        if ledger.last is None:
            ledger.open_epoch(self._call(self._reader.progress()), 1)
        self._epoch = ledger.epoch
        self._spark = SparkCheckpoint(Path(pipeline.checkpoint) / "spark" / str(self._epoch))
        self._initial = self._call(self._begin(ledger))
        judge(ledger, self._spark, self._initial, is_open=any(lacking))
        self._publisher = Publisher(self._client, pipeline, self._epoch)
        self._done = self._spark.last(COMMITS)
        self._call(self._check_source())
        self.poll()

    async def _open_reader(self) -> Reader:
        pipeline = self.pipeline
        await self._client.open()
        await ensure_topic(self._client, pipeline.topic)
        return await self._client.reader(pipeline.topic, pipeline.subscription, owner=self._owner)

    async def _begin(self, ledger: Ledger) -> dict[int, int]:
        """Where the first batch of this epoch starts: the same, whenever it is asked."""
        first = [each for each in ledger.entries if (each.epoch, each.batch) == (self._epoch, -1)]
        if not first:
            return {}
        if self._spark.last(COMMITS) < 0:
            self._reader = await rewind(self._client, self._reader, first[-1].ends())
            await self._report(first[-1].ends())
            return await self._reader.progress() | first[-1].ends()
        return first[-1].ends()

    async def _check_source(self) -> None:
        """Raises SourceDiffers when the topic lacks what comes next."""
        planned, committed = self._spark.last(OFFSETS), self._spark.last(COMMITS)
        held = (await self._client.describe_topic(self.pipeline.topic))["ends"]
        progress = await self._reader.progress()
        upto = self._spark.ends(planned) if planned >= 0 else self._initial
        start = self._spark.ends(committed) if committed >= 0 else self._initial
        for at, end in upto.items():
            has = held[at] if at < len(held) else 0
            low, need = progress.get(at, 0), start.get(at, 0)
            if has < end or low > need:
                raise SourceDiffers(
                    f"pipeline {self.pipeline.name!r} goes on at {at}:{need} up to {at}:{end}, and "
                    f"{self.pipeline.source} holds {at}:{low} to {at}:{has}: the topic was deleted "
                    "or its reader moved. Put it back, or start with another checkpoint and table"
                )

    def start(self, spark: Any) -> None:
        """Starts the query."""
        pipeline = self.pipeline
        given = {
            "url": pipeline.url, "topic": pipeline.topic, "subscription": pipeline.subscription,
            "owner": self._owner, "emit": "ranges", "progress": "caller",
            "startingOffsets": json.dumps({str(at): end for at, end in self._initial.items()}),
            "maxRowsPerBatch": str(pipeline.settings.max_rows_per_batch),
            "maxBytesPerBatch": str(pipeline.settings.max_bytes_per_batch),
            "minTasks": str(spark.sparkContext.defaultParallelism),
        }  # fmt: skip
        stream = self._loaded(spark.readStream.format("penstock").options(**given))
        writer = stream.writeStream.foreachBatch(self._on_batch).queryName(pipeline.name)
        writer = writer.option("checkpointLocation", str(self._spark.folder.absolute()))
        if pipeline.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        else:
            seconds = 0.0 if pipeline.trigger == ASAP else float(pipeline.trigger)
            writer = writer.trigger(processingTime=f"{round(seconds * 1000)} milliseconds")
        self.query = writer.start()
        self._spark.claim()

    def _loaded(self, reading: Any) -> Any:
        """The stream; tried again when Spark's Python did not come up in time."""
        while True:
            try:
                return reading.load()
            except Exception as error:
                if NOT_UP not in str(error) or self._revivals >= REVIVALS_MAX:
                    raise failure_of(self.pipeline.name, str(error)) from error
                self._revivals += 1

    # -- a batch -----------------------------------------------------------------------------

    def _on_batch(self, frame: Any, number: int) -> None:
        """Called by Spark, in a thread of its own."""
        with self._guard:
            if self._is_stopping:
                raise Stopped(f"batch {number} of {self.pipeline.name!r} is left to the next run")
            try:
                self.process(frame, number)
            except BaseException as error:
                self.failed = error
                raise
        self._done = number

    def process(self, frame: Any, number: int) -> None:
        """Does batch `number`, which Spark has planned and perhaps has planned before."""
        self.poll()
        ledger = self._ledger
        assert ledger is not None
        self._spark.sync(OFFSETS, number)
        self._at("offsets written")
        entry = self._recorded(ledger, number)
        self._at("ledger written")
        write_id = WriteId(f"{self.pipeline.name}/{self._epoch}", number)
        missing = {
            root: table for root, table in self._tables.items() if not table.is_committed(write_id)
        }
        if not missing:
            return
        where = f"batch {number} of {write_id.application}"
        outcomes = self._worked(frame, entry, missing, where)
        self._at("files written")
        for at, root in enumerate(missing):
            joining.counts_of(outcomes, at).check(f"{where}, table {root}")
        counts = joining.counts_of(outcomes, 0)
        if list(missing) == list(self._tables):  # else a run before this one published
            counts.events = self._published(outcomes)
            self._at("published")
        self._export(entry, write_id, counts)
        ends = self._spark.ends(number)
        source = {"topic": self.pipeline.topic, "ends": {str(at): ends[at] for at in sorted(ends)}}
        for at, table in enumerate(missing.values()):
            added = [file for each in outcomes for file in each.stored[at].files]
            table.commit(added, write_id, source)
            self._at("table committed")
            self._compact(table)
        self.counts.add(counts)
        self.batches += 1

    def _recorded(self, ledger: Ledger, number: int) -> Entry:
        """The entry of a batch, as it was when it was planned first."""
        features = self._call(self._features.read())
        ledger.record(
            Entry(
                self._epoch, number, self._spark.ranges(number, self._initial),
                {"version": self._features.version, "active": msgspec.to_builtins(features)},
                {root: table.version for root, table in self._tables.items()},
            )
        )  # fmt: skip
        return next(
            each
            for each in reversed(ledger.entries)
            if (each.epoch, each.batch) == (self._epoch, number)
        )

    def _worked(
        self, frame: Any, entry: Entry, tables: dict[str, TableStorage], where: str
    ) -> list[workers.Outcome]:
        """Has the workers do the ranges; no row is in two of their files afterwards."""
        pipeline = self.pipeline
        features = msgspec.convert(entry.features.get("active", {}), Features)
        plan = workers.Plan(
            pipeline.url, pipeline.topic, pipeline.subscription, self._owner,
            pipeline.settings.dataset, features.has_validation,
            msgspec.to_builtins(pipeline.limits),
            [
                workers.Target(root, table.staging(), table.files(entry.tables.get(root)))
                for root, table in tables.items()
            ],
            pipeline.publish is not None,
        )  # fmt: skip

        def again(outcome: workers.Outcome, priors: Any) -> workers.Outcome:
            joining.drop_files(outcome, tables)
            return workers.work_range(plan, outcome.partition, outcome.start, outcome.end, priors)

        # One small row for each task: `mapInArrow` would gain nothing here, and needs pandas.
        returned = frame.rdd.map(partial(workers.work_row, plan)).collect()
        found = [workers.decode(bytes(each)) for each in returned]
        joining.check_cover(found, entry.ranges, where)
        return joining.joined(found, again)

    def _published(self, outcomes: list[workers.Outcome]) -> int:
        """Publishes refused readings, events and rows, in source order; how many events."""
        refused = [one for each in outcomes for one in each.quarantined]
        events = joining.events_of(outcomes)
        rows = joining.rows_of(outcomes) if self.pipeline.publish is not None else None
        self._call(self._publisher.publish(refused, events, rows))
        return len(events)

    def _export(self, entry: Entry, write_id: WriteId, counts: Counts) -> None:
        """Writes the counts of a batch where `pipeline status` finds them."""
        line = {
            "application": write_id.application, "batch": entry.batch,
            **msgspec.to_builtins(counts),
        }  # fmt: skip
        with (Path(self.pipeline.checkpoint) / COUNTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        if msgspec.convert(entry.features.get("active", {}), Features).has_logging:
            log.info("pipeline %s: %s", self.pipeline.name, line)

    def _compact(self, table: TableStorage) -> None:
        settings = self.pipeline.settings
        target = settings.compact_target_mb * 1024 * 1024
        limit = settings.compact_files
        if limit and any(len(few) >= limit for few in chosen(table.files(), target).values()):
            compact(table, target)

    # -- progress and end --------------------------------------------------------------------

    def poll(self) -> None:
        """Reports to the broker what Spark has committed since it was reported last."""
        with self._reporting:
            number = self._done
            if number <= self._reported or not self._spark.has(COMMITS, number):
                return
            self._spark.sync(COMMITS, number)
            self._at("Spark's commit")
            self._call(self._report(self._spark.ends(number)))
            self._reported = number
            self._at("progress reported")

    async def _report(self, ends: dict[int, int]) -> None:
        progress = await self._reader.progress()
        further = {at: end for at, end in ends.items() if progress.get(at, 0) < end}
        if not further:
            return
        planned = {at: end for at, _, end in await self._reader.planned()}
        if any(planned.get(at, 0) < end for at, end in further.items()):
            await self._reader.plan(None, None)
        await self._reader.commit(further)

    @property
    def is_active(self) -> bool:
        """True while the query runs."""
        return self.query is not None and bool(self.query.isActive)

    def stop(self) -> None:
        """Ends the query after the batch in hand, and reports that."""
        self._is_stopping = True
        if self._guard.acquire(timeout=STOP_S_MAX):
            self._guard.release()
        end = time.monotonic() + STOP_S_MAX
        while self.is_active and self._done >= 0 and time.monotonic() < end:
            if self._spark.has(COMMITS, self._done):
                break
            time.sleep(PAUSE_S)
        if self.query is not None:
            self.query.stop()

    def revive(self, spark: Any) -> None:
        """Starts the query again when a Python process of Spark did not come up in time.

        Spark gives it ten seconds, which a busy machine may need for its imports; nothing was lost.
        """
        error = None if self.is_active or self.query is None else self.query.exception()
        if error is None or self.failed is not None or self._revivals >= REVIVALS_MAX:
            return
        if NOT_UP in str(error):
            self._revivals += 1
            log.warning("pipeline %s: %s; starting again", self.pipeline.name, NOT_UP)
            self.start(spark)

    def check(self) -> None:
        """Raises what ended the query, if it failed."""
        if isinstance(self.failed, PenstockError):
            raise self.failed
        if self.failed is not None:
            raise failure_of(self.pipeline.name, str(self.failed)) from self.failed
        error = None if self.query is None else self.query.exception()
        if error is not None and not self._is_stopping:
            raise failure_of(self.pipeline.name, str(error))

    def close(self) -> None:
        """Lets go of tables and checkpoint."""
        for table in self._tables.values():
            table.close()
        if self._ledger is not None:
            self._ledger.close()
