"""Messages of our own broker: a reader, whose ranges the workers read themselves."""

import json
from functools import partial
from typing import Any

import pyarrow as pa

from penstock.client.client import Client
from penstock.client.reader import Reader
from penstock.pipeline import holding
from penstock.pipeline.beginning import choose_epoch
from penstock.pipeline.datasets.features import Features, FeatureView
from penstock.pipeline.flow import Publisher, ensure_source
from penstock.pipeline.ledger import Ledger, Range
from penstock.pipeline.rewinding import rewind
from penstock.pipeline.settings import Pipeline
from penstock.pipeline.spark import joining, workers
from penstock.pipeline.spark.cutting import cut
from penstock.pipeline.spark.feed import Call, Offsets
from penstock.pipeline.spark.workers import Outcome, Plan, Priors, ReaderPlace
from penstock.pipeline.work import Quarantined
from penstock.vocabulary.reading import PlannedRange


class PenstockFeed:
    """A topic of a Penstock broker. `call` runs a coroutine on the client's loop."""

    def __init__(self, pipeline: Pipeline, client: Client, call: Call, ledger: Ledger) -> None:
        self._pipeline = pipeline
        self._client = client
        self._call = call
        self._ledger = ledger
        self._owner = holding.new_owner(pipeline)
        self._features = FeatureView(client)
        self._reader: Reader
        self._publisher = Publisher(client, pipeline, ledger)

    def open(self) -> None:
        """Opens the reader, which fences an older run."""
        self._reader = self._call(self._open())

    async def _open(self) -> Reader:
        pipeline = self._pipeline
        await self._client.open()
        await ensure_source(self._client, pipeline)
        await choose_epoch(self._client, pipeline, self._ledger)
        return await holding.open_reader(
            self._client, pipeline, self._owner, is_new=self._ledger.last is None
        )

    def progress(self) -> Offsets:
        """How far the reader is."""
        found: Offsets = self._call(self._reader.progress())
        return found

    def begin(self, ends: Offsets) -> Offsets:
        """Moves the reader there, back too when the broker still holds that."""
        self._call(holding.check_ends(self._client, self._pipeline, ends))
        self._reader = self._call(rewind(self._client, self._reader, ends))
        self.report(ends)
        return self.progress() | ends

    def check(self, need: Offsets, upto: Offsets) -> None:
        """Compares with what the reader holds."""
        progress = self.progress()
        for at, low in progress.items():
            first, end = need.get(at, 0), upto.get(at, 0)
            if at in upto and low > first:
                raise holding.differs(self._pipeline, at, (first, end), (low, end))
        ranges = [(at, need.get(at, 0), end) for at, end in upto.items()]
        self._call(holding.check_planned(self._client, self._reader, self._pipeline, ranges))

    def stream(self, spark: Any, initial: Offsets) -> Any:
        """Emits ranges only."""
        pipeline = self._pipeline
        given = {
            "url": pipeline.url, "topic": pipeline.topic, "subscription": pipeline.subscription,
            "owner": self._owner, "emit": "ranges", "progress": "caller",
            "startingOffsets": json.dumps({str(at): end for at, end in initial.items()}),
            "maxRowsPerBatch": str(pipeline.settings.max_rows_per_batch),
            "maxBytesPerBatch": str(pipeline.settings.max_bytes_per_batch),
        }  # fmt: skip
        return spark.readStream.format("penstock").options(**given)

    def work(self, frame: Any, plan: Plan, ranges: list[Range]) -> list[Outcome]:
        """One task for each range, or part of one.

        The frame has the same ranges, and would need processes of its own to say so.
        """
        spark = frame.sparkSession.sparkContext
        tasks = cut([PlannedRange(*each) for each in ranges], spark.defaultParallelism)
        work = partial(workers.work_planned, plan, self._place())
        done = spark.parallelize(tasks, max(1, len(tasks))).map(work).collect()
        return [workers.decode(bytes(each)) for each in done]

    def work_again(self, plan: Plan, done: Outcome, priors: Priors) -> Outcome:
        """Reads the range again."""
        place = self._place()
        return workers.work_range(plan, place, done.partition, done.start, done.end, priors)

    def check_cover(self, outcomes: list[Outcome], ranges: list[Range], where: str) -> None:
        """Every offset is in one range."""
        joining.check_cover(outcomes, ranges, where)

    def report(self, ends: Offsets) -> None:
        """Commits the reader."""
        self._call(self._report(ends))

    async def _report(self, ends: Offsets) -> None:
        progress = await self._reader.progress()
        further = {at: end for at, end in ends.items() if progress.get(at, 0) < end}
        if not further:
            return
        planned = {at: end for at, _, end in await self._reader.planned()}
        if any(planned.get(at, 0) < end for at, end in further.items()):
            await self._reader.plan(None, None)
        await self._reader.commit(further)

    def features(self) -> tuple[int, Features]:
        """From the topic of features."""
        found: Features = self._call(self._features.read())
        return self._features.version, found

    def publish(
        self, refused: list[Quarantined], events: pa.Table, rows: pa.Table | None,
        ranges: list[Range],
    ) -> None:  # fmt: skip
        """Numbered by source offset: what was published before is known to the broker."""
        self._call(self._publisher.publish(refused, events, rows, ranges))

    def close(self) -> None:
        """The client belongs to others."""

    def _place(self) -> ReaderPlace:
        pipeline = self._pipeline
        return ReaderPlace(pipeline.url, pipeline.topic, pipeline.subscription, self._owner)
