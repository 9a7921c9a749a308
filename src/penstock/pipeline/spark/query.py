"""A pipeline as a Spark query: `foreachBatch`, the ledger, the workers, one commit, progress.

Order of a batch: Spark plans the range and writes `offsets/N`; the ledger entry is synced; workers
read, validate, transform and write files; refused readings and events are published; the table is
committed and synced; Spark writes `commits/N`; progress is reported to the broker. Killed anywhere
in between, the next run does the same batch again, and the result is as if it had not died.
"""

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.pipeline import counting, rules
from penstock.pipeline.counting import Counts
from penstock.pipeline.datasets.features import Features
from penstock.pipeline.flow import At
from penstock.pipeline.ledger import Entry, Ledger, Range, identity_of
from penstock.pipeline.ledger import judge as judge_table
from penstock.pipeline.repositories.choose import open_repository
from penstock.pipeline.repositories.compaction import compact, is_due
from penstock.pipeline.repositories.port import TableStorage, WriteId
from penstock.pipeline.settings import ASAP, AVAILABLE_NOW, Pipeline
from penstock.pipeline.spark import joining, workers
from penstock.pipeline.spark.checkpoint import COMMITS, OFFSETS, SparkCheckpoint, judge
from penstock.pipeline.spark.delta_writer import SparkDeltaStorage
from penstock.pipeline.spark.failing import failure_of
from penstock.pipeline.spark.feed import Feed, Offsets
from penstock.vocabulary.errors import PenstockError

log = logging.getLogger("penstock.pipeline")

STOP_S_MAX: Final = 60.0
"""How long a stop waits for the batch in hand."""
PAUSE_S: Final = 0.02
NOT_UP: Final = "Python worker failed to connect back"
COMING_UP: Final = ("Initializing sources", "Getting offsets from")
"""How the status of a query begins until its source answered the first time."""
REVIVALS_MAX: Final = 20


class Stopped(PenstockError):
    """A batch that came after the wish to stop; the next run does it."""

    code = "stopped"


class Failed(PenstockError):
    """What Spark is told of a batch that failed; why is kept by the lane."""

    code = "failed"


class SparkLane:
    """One pipeline that runs as a query; `feed_of` makes its source."""

    def __init__(
        self, pipeline: Pipeline, feed_of: Callable[[Ledger], Feed], at: At = lambda _: None
    ) -> None:
        self.pipeline = pipeline
        self.counts = Counts()
        self.batches = 0
        self.failed: BaseException | None = None
        self.query: Any = None
        self._feed_of = feed_of
        self._feed: Feed | None = None
        self._at = at
        self._ledger: Ledger | None = None
        self._tables: dict[str, TableStorage] = {}
        self._guard = threading.Lock()
        self._reporting = threading.Lock()
        self._is_stopping = False
        self._is_cut = False
        self._done = -1
        """The newest batch that is stored."""
        self._reported = -1
        self._revivals = 0
        self._is_up = False

    # -- open and start ----------------------------------------------------------------------

    def open(self) -> None:
        """Checks everything that can be checked before any data moves. Raises refusals."""
        pipeline = self.pipeline
        ledger = self._ledger = Ledger(Path(pipeline.checkpoint), identity_of(pipeline))
        for url, folder in zip(pipeline.repositories, pipeline.folders(), strict=True):
            self._tables[folder] = self._opened(url, folder)
        lacking = [  # a list: every table is judged
            judge_table(ledger, root, table.last(pipeline.name))
            for root, table in self._tables.items()
        ]
        feed = self._feed = self._feed_of(ledger)
        feed.open()
        self._epoch = ledger.epoch
        self._spark = SparkCheckpoint(Path(pipeline.checkpoint) / "spark" / str(self._epoch))
        first = self._first(ledger, feed)
        is_new = bool(first) and self._spark.last(COMMITS) < 0
        self._initial = feed.progress() | first if is_new else first
        judge(ledger, self._spark, self._initial, is_open=any(lacking))
        if is_new:  # only now: a run that is refused moves no reader
            self._initial = feed.begin(first)
        self._done = self._spark.last(COMMITS)
        planned = self._spark.last(OFFSETS)
        feed.check(
            self._spark.ends(self._done) if self._done >= 0 else self._initial,
            self._spark.ends(planned) if planned >= 0 else self._initial,
        )
        self.poll()

    def _opened(self, url: str, folder: str) -> TableStorage:
        pipeline = self.pipeline
        if pipeline.settings.writer == "penstock":
            return open_repository(url, pipeline.table, pipeline.dataset)
        return SparkDeltaStorage(folder, pipeline.dataset)

    @property
    def feed(self) -> Feed:
        """Where its messages come from."""
        assert self._feed is not None
        return self._feed

    def _first(self, ledger: Ledger, feed: Feed) -> Offsets:
        """Where the first batch of this epoch starts: the same, whenever it is asked."""
        if ledger.last is None:
            return feed.progress()
        found = [each for each in ledger.entries if (each.epoch, each.batch) == (self._epoch, -1)]
        return found[-1].ends() if found else {}

    def start(self, spark: Any) -> None:
        """Starts the query."""
        pipeline = self.pipeline
        self._is_up = False
        for table in self._tables.values():
            if isinstance(table, SparkDeltaStorage):
                table.spark = spark
        stream = self._loaded(self.feed.stream(spark, self._initial))
        assert self._ledger is not None
        if self._ledger.last is None:  # nothing is left that could be refused
            self._ledger.open_epoch(self._initial, self._epoch, is_asked=True)
        self._spark.clear_drafts()
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
            except BaseException as error:  # noqa: BLE001 - it is kept, and raised by check
                self.failed = error
                # Spark looks for a pattern in the trace, and a long one overflows its stack.
                raise Failed(f"batch {number} of {self.pipeline.name!r} failed") from None
            self._done = number  # under the guard: a stop that waits for it asks for its commit

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
            joining.check_counts(outcomes, at, f"{where}, table {root}")
        counts = joining.counts_of(outcomes, 0)
        ends = self._spark.ends(number)
        if list(missing) == list(self._tables):  # else a run before this one published
            counts.events = self._published(outcomes, entry.ranges)
            self._at("published")
            self._note(entry, write_id, counts)
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
        version, features = self.feed.features()
        ledger.record(
            Entry(
                self._epoch, number, self._spark.ranges(number, self._initial),
                {"version": version, "active": msgspec.to_builtins(features)},
                {root: table.version for root, table in self._tables.items()},
                rules.fingerprint(self.pipeline),
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
            return self.feed.work_again(plan, outcome, priors)

        found = self.feed.work(frame, plan, entry.ranges)
        self.feed.check_cover(found, entry.ranges, where)
        return joining.joined(found, plan, again)

    def _published(self, outcomes: list[workers.Outcome], ranges: list[Range]) -> int:
        """Publishes refused readings, events and rows, in source order; how many events."""
        refused = [one for each in outcomes for one in each.quarantined]
        events = joining.events_of(outcomes)
        rows = joining.rows_of(outcomes) if self.pipeline.publish is not None else None
        self.feed.publish(refused, events, rows, ranges)
        return len(events)

    def _note(self, entry: Entry, write_id: WriteId, counts: Counts) -> None:
        """Writes the counts of a batch down, before any table has it."""
        line = counting.note(Path(self.pipeline.checkpoint), write_id, counts)
        if msgspec.convert(entry.features.get("active", {}), Features).has_logging:
            log.info("pipeline %s: %s", self.pipeline.name, line)

    def _compact(self, table: TableStorage) -> None:
        settings = self.pipeline.settings
        target = settings.compact_target_mb * 1024 * 1024
        limits = (settings.compact_files, settings.compact_after_s)
        if is_due(table, target, *limits, time.time()):
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
            self.feed.report(self._spark.ends(number))
            self._reported = number
            self._at("progress reported")

    @property
    def is_active(self) -> bool:
        """True while the query runs."""
        return self.query is not None and bool(self.query.isActive)

    @property
    def is_starting(self) -> bool:
        """True until the query's Python processes are up, and its first batch is planned."""
        if not self.is_active or self._is_up:
            return False
        self._is_up = not self.query.status["message"].startswith(COMING_UP)
        return not self._is_up

    def ask_to_stop(self) -> None:
        """No batch begins any more."""
        self._is_stopping = True

    def stop(self) -> None:
        """Ends the query after the batch in hand, and reports that."""
        self.ask_to_stop()
        if self._guard.acquire(timeout=STOP_S_MAX):
            self._guard.release()
        else:
            self._is_cut = True
            log.warning(
                "pipeline %s: its batch did not end within %.0f s and is broken off; the next run "
                "does it again", self.pipeline.name, STOP_S_MAX,
            )  # fmt: skip
        end = time.monotonic() + STOP_S_MAX
        while self.is_active and self._done >= 0 and time.monotonic() < end:
            if self._spark.has(COMMITS, self._done):
                break
            time.sleep(PAUSE_S)
        if self.query is not None:
            self.query.stop()

    def is_to_start_again(self) -> bool:
        """Whether the query ended because one of Spark's Python processes did not come up in time.

        Spark gives it ten seconds, which a busy machine may need for its imports; nothing was lost.
        Every yes is counted, and there is an end to them.
        """
        error = None if self.query is None else self.query.exception()
        if error is None or NOT_UP not in str(error):
            return False
        if self.failed is not None or self._revivals >= REVIVALS_MAX:
            return False
        self._revivals += 1
        log.warning("pipeline %s: %s; starting again", self.pipeline.name, NOT_UP)
        return True

    def check(self) -> None:
        """Raises what ended the query, if it failed."""
        if self._is_cut:
            return  # the failure is the end that was asked for
        if isinstance(self.failed, PenstockError):
            raise self.failed
        if self.failed is not None:
            raise failure_of(self.pipeline.name, str(self.failed)) from self.failed
        error = None if self.query is None else self.query.exception()
        if error is not None and not self._is_stopping:
            raise failure_of(self.pipeline.name, str(error))

    def close(self) -> None:
        """Lets go of broker, tables and checkpoint."""
        if self._feed is not None:
            self._feed.close()
        for table in self._tables.values():
            table.close()
        if self._ledger is not None:
            self._ledger.close()
