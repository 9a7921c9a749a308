"""The Spark source `penstock`: `spark.readStream.format("penstock")` and `spark.read`.

A streaming query is a reader of the topic. The end of a batch is chosen by planning, so that the
broker holds the range before Spark writes it down; reading it again gives the same rows. Spark
calls the planning half in a process of its own, and `read` in the workers: the ranges carry the
owner token from one to the other.

Spark starts a Python process for each step of a query and imports this module there: what only
some of them need, the client and the datasets, is imported where it is used.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from penstock.pipeline.spark import options
from penstock.pipeline.spark.cutting import cut
from penstock.vocabulary.errors import InvalidArgument, Unsupported
from penstock.vocabulary.reading import PlannedRange

LOOK_ROWS: Final = 10_000
RANGES: Final = pa.schema(
    [
        pa.field("partition", pa.int32()),
        pa.field("start", pa.int64()),
        pa.field("end", pa.int64()),
    ]
)
"""The columns of emit=ranges: what the workers read themselves."""
Offsets = dict[str, int]
"""As Spark keeps them: partition, as text, to offset."""


class Range(InputPartition):
    """What one task reads: offsets start…end of a partition, for an owner; '' = only looking."""

    def __init__(self, partition: int, start: int, end: int, owner: str) -> None:
        super().__init__((partition, start, end))
        self.partition = partition
        self.start = start
        self.end = end
        self.owner = owner


class PenstockSource(DataSource):
    """Topics of a Penstock broker. The options are in `options.py`."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self._given = dict(options)

    @classmethod
    def name(cls) -> str:
        """What `format` is given."""
        return "penstock"

    def schema(self) -> StructType:
        """Follows from `emit`, `dataset` and `columns`, unless the caller gives one."""
        return from_arrow_schema(_arrow_schema(options.parse(self._given)))

    def reader(self, schema: StructType) -> "LookingReader":
        """For `spark.read`."""
        return LookingReader(options.parse(self._given), schema)

    def streamReader(self, schema: StructType) -> "PlanningReader":  # noqa: N802 - Spark's name
        """For `spark.readStream`."""
        return PlanningReader(options.parse(self._given), schema)


class _Reading:
    """The half that runs in the workers."""

    def __init__(self, given: options.Options, schema: StructType) -> None:
        self._given = given
        self._schema = schema
        self._is_json = given.takes_schema and not (
            given.emit == options.BODIES and schema == from_arrow_schema(_arrow_schema(given))
        )
        if self._is_json:
            self._layout()  # says what is wrong with it now
            return
        wanted = from_arrow_schema(_arrow_schema(given))
        if schema != wanted:
            raise InvalidArgument(
                f"format penstock with emit={given.emit} has the columns {wanted.simpleString()}; "
                "leave `schema` out, and choose with the option columns"
            )
        if given.mode is not None:
            raise InvalidArgument(
                "option mode goes with a schema, whose columns are read from JSON bodies: "
                '.schema("name string, amount double")'
            )

    def _layout(self) -> Any:
        from penstock.pipeline.spark import json_rows  # noqa: PLC0415 - see above

        if self._given.columns is not None:
            raise InvalidArgument("option columns: a schema is given, which says the columns")
        schema = to_arrow_schema(self._schema, timezone="UTC")
        return json_rows.layout(schema, self._given.corrupt)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """The rows of a range, the same as often as asked."""
        given = self._given
        wanted = to_arrow_schema(self._schema, timezone="UTC")
        if given.emit == options.RANGES:
            row = [[partition.partition], [partition.start], [partition.end]]
            yield pa.RecordBatch.from_arrays(
                [pa.array(each, kind) for each, kind in zip(row, RANGES.types, strict=True)],
                schema=wanted,
            )
            return
        batches = _batches(given, partition)
        if self._is_json:
            from penstock.pipeline.spark import json_rows  # noqa: PLC0415 - see above

            yield from json_rows.parsed(batches, self._layout(), given.mode or options.MODES[0])
            return
        from penstock.pipeline.datasets import finding  # noqa: PLC0415
        from penstock.pipeline.spark import columns  # noqa: PLC0415

        schema = _arrow_schema(given)
        if given.dataset is None:
            found = columns.bodies(batches, schema)
        else:
            found = columns.typed(batches, finding.find(given.dataset), schema)
        for batch in found:
            yield batch if batch.schema.equals(wanted) else batch.cast(wanted)


class PlanningReader(_Reading, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query as a reader of the topic."""

    def __init__(self, given: options.Options, schema: StructType) -> None:
        super().__init__(given, schema)
        if given.subscription is None:
            raise InvalidArgument(
                "readStream needs the option 'subscription': the name under which the broker "
                "keeps the query's place"
            )
        self._subscription = given.subscription
        # Every run has an owner of its own, which fences the run before it.
        self._owner = given.owner or f"spark-{secrets.token_hex(8)}"
        self._target: Offsets | None = None

    def initialOffset(self) -> Offsets:  # noqa: N802
        """Where a query without a checkpoint starts."""
        found = _texts(self._reader().progress())
        if isinstance(self._given.start, Mapping):
            found |= _texts(self._given.start)
        return found

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """At most `maxRowsPerBatch` rows."""
        return ReadMaxRows(self._given.rows_max)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:  # noqa: N802
        """Chooses the end of a batch; the broker holds it when this returns."""
        rows, size = _limits(limit, self._given)
        after = {int(at): offset for at, offset in start.items()}
        found = dict(start)
        for partition, _, end in self._reader().plan(rows, size, after=after):
            found[str(partition)] = end
        if self._target is not None:
            found = {
                at: max(min(end, self._target.get(at, 0)), start.get(at, 0))
                for at, end in found.items()
            }
        return found

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """What comes later than now is left for the next run."""
        self._target = self._ends()

    def reportLatestOffset(self) -> Offsets:  # noqa: N802
        """How far the topic reaches, for the progress of the query."""
        return self._ends()

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[Range]:
        """The ranges of a batch, cut for the tasks asked for."""
        ranges = [
            PlannedRange(int(at), start.get(at, 0), stop)
            for at, stop in sorted(end.items(), key=lambda each: int(each[0]))
            if stop > start.get(at, 0)
        ]
        return [Range(*each, self._owner) for each in cut(ranges, self._given.tasks_min)]

    def commit(self, end: Offsets) -> None:
        """Spark will not ask for less any more: the reader's progress moves."""
        if not self._given.reports:
            return
        reader = self._reader()
        progress = reader.progress()
        ends = {int(at): stop for at, stop in end.items() if stop > progress.get(int(at), 0)}
        if ends:
            reader.commit(ends)

    def stop(self) -> None:
        """Lets go of the broker."""
        _connecting().close_all()

    def _reader(self) -> Any:
        given = self._given
        start = given.start if not isinstance(given.start, Mapping) else None
        place = (given.url, given.topic, self._subscription, self._owner)
        return _connecting().reader_of(*place, start)

    def _ends(self) -> Offsets:
        self._reader()
        return _texts(dict(enumerate(_topic_ends(self._given))))


class LookingReader(_Reading, DataSourceReader):
    """What a topic holds now. Nothing is held or moved for it, unless `subscription` is given."""

    def partitions(self) -> Sequence[Range]:
        """From `startingOffsets` to the present end."""
        given = self._given
        if given.subscription is not None and given.says_start:
            raise InvalidArgument(
                "spark.read with the option 'subscription' reads what that reader has before it: "
                "leave startingOffsets out"
            )
        if isinstance(given.start, int | float):
            raise Unsupported(
                "spark.read takes startingOffsets as 'earliest', 'latest' or offsets by partition. "
                "To begin at a time, create a subscription of kind reader there, and name it"
            )
        ends = _topic_ends(given)
        if given.subscription is not None:
            owner = given.owner or f"spark-{secrets.token_hex(8)}"
            reader = _connecting().reader_of(given.url, given.topic, given.subscription, owner)
            reader.plan(None, None)
            return [Range(*each, owner) for each in cut(reader.planned(), given.tasks_min)]
        starts: Mapping[int, int]
        if isinstance(given.start, Mapping):
            starts = given.start
        elif given.start == "latest":
            starts = dict(enumerate(ends))
        else:
            starts = {}
        ranges = [
            PlannedRange(at, starts.get(at, 0), end)
            for at, end in enumerate(ends)
            if end > starts.get(at, 0)
        ]
        return [Range(*each, "") for each in cut(ranges, given.tasks_min)]


def _batches(given: options.Options, part: Range) -> Iterator[Any]:
    if part.owner:
        assert given.subscription is not None
        reader = _connecting().reader_of(given.url, given.topic, given.subscription, part.owner)
        yield from reader.batches(part.partition, part.start, part.end)
        return
    yield from look(given.url, given.topic, part)


def look(url: str, topic: str, part: Range) -> Iterator[Any]:
    """The messages of a range that are held, without a reader."""
    from penstock.client.reader import ReadBatch  # noqa: PLC0415 - see above

    at = part.start
    while at < part.end:
        count = min(LOOK_ROWS, part.end - at)
        frames = _connecting().peek_frames(url, topic, count, part.partition, at)
        kept = [frame for frame in (_before(each, part.end) for each in frames) if frame.offsets]
        if kept:
            yield ReadBatch(topic, part.partition, kept)
        if not frames:
            return
        at = frames[-1].offsets[-1] + 1


def _before(frame: Any, end: int) -> Any:
    """The messages of a frame whose offsets are below `end`."""
    if frame.offsets[-1] < end:
        return frame
    count = sum(offset < end for offset in frame.offsets)
    return msgspec.structs.replace(
        frame, offsets=frame.offsets[:count], indexes=frame.indexes[:count]
    )


def _connecting() -> Any:
    """The connections of this process."""
    from penstock.pipeline.spark import connecting  # noqa: PLC0415 - see above

    return connecting


def _topic_ends(given: options.Options) -> list[int]:
    found: list[int] = _connecting().client_of(given.url).describe_topic(given.topic)["ends"]
    return found


def _arrow_schema(given: options.Options) -> pa.Schema:
    if given.emit == options.RANGES:
        return RANGES
    from penstock.pipeline.datasets import finding  # noqa: PLC0415 - see above
    from penstock.pipeline.spark import columns  # noqa: PLC0415

    if given.emit == options.BODIES:
        return columns.chosen(columns.BODIES, given.columns)
    if given.dataset is None:
        raise InvalidArgument("emit=typed needs the option 'dataset', or a schema")
    return columns.chosen(columns.typed_schema(finding.find(given.dataset)), given.columns)


def _limits(limit: ReadLimit, given: options.Options) -> tuple[int | None, int | None]:
    if isinstance(limit, ReadMaxRows):
        return limit.max_rows, given.bytes_max
    if isinstance(limit, ReadMaxBytes):
        return None, limit.max_bytes
    if isinstance(limit, ReadAllAvailable):
        return None, None
    return given.rows_max, given.bytes_max


def _texts(offsets: Mapping[int, int]) -> Offsets:
    return {str(at): offset for at, offset in sorted(offsets.items())}
