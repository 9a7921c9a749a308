"""`spark.readStream.format("penstock")` and `spark.read` against a served broker."""

import asyncio
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.types import DataType, DayTimeIntervalType, IntegerType, StructType

from penstock.client.client import connect
from penstock.pipeline.spark.source import PenstockSource
from penstock.vocabulary.errors import InvalidArgument, Unsupported
from tests.pipeline.lane import readings
from tests.pipeline.spark import world
from tests.servers.fixtures import unique

WAIT_S = 300


def _stream(spark: Any, url: str, topic: str, **options: str) -> Any:
    given = {"url": url, "topic": topic, "subscription": "s"} | options
    return world.patiently(spark.readStream.format("penstock").options(**given).load)


def _drain(frame: Any, folder: Path, into: list[Any], *, fails_at: int = -1) -> Any:
    """Runs a query until nothing is new; batch → rows."""

    def take(batch: Any, number: int) -> None:
        rows = [tuple(row) for row in batch.collect()]
        into.append((number, sorted(rows, key=repr)))
        if number == fails_at:
            raise RuntimeError("the sink fails here")

    writer = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(folder))
        .trigger(availableNow=True)
    )
    started: list[Any] = []

    def run() -> None:
        started.append(writer.start())
        assert started[-1].awaitTermination(WAIT_S)

    if fails_at < 0:
        world.patiently(run)
    else:
        with pytest.raises(PySparkException, match="the sink fails here"):
            world.patiently(run)
    return started[-1]


def test_a_query_is_a_reader(spark: Any, served: str, tmp_path: Path) -> None:
    topic = unique("orders")
    world.post(served, topic, [b"%d" % at for at in range(250)], 3)
    frame = _stream(spark, served, topic, maxRowsPerBatch="100").select(
        "partition", "offset", "body"
    )
    seen: list[Any] = []
    query = _drain(frame, tmp_path / "ck", seen, fails_at=1)
    assert query.exception() is not None
    assert [number for number, _ in seen] == [0, 1]
    assert max(len(rows) for _, rows in seen) <= 100, "admission control"

    world.post(served, topic, [b"late"], 3, first=250)
    _drain(frame, tmp_path / "ck", seen)
    again = [rows for number, rows in seen if number == 1]
    assert again[0] == again[1], "the batch that failed is read again, byte for byte"
    stored = dict(seen)
    bodies = Counter(bytes(row[2]) for rows in stored.values() for row in rows)
    assert bodies == Counter([b"%d" % at for at in range(250)] + [b"late"])
    assert world.lag(served, topic, "s") <= 100, "progress of all but the last batch is known"

    # The next run tells the broker about the last one.
    world.post(served, topic, [b"last"], 3, first=251)
    _drain(frame, tmp_path / "ck", seen)
    assert world.lag(served, topic, "s") == 1
    report = json.loads(query.lastProgress["sources"][0]["latestOffset"])
    assert sorted(report) == ["0", "1", "2"]


def test_typed_columns_go_on_in_sql(spark: Any, served: str, tmp_path: Path) -> None:
    topic = unique("monitoring.pms")
    world.post(served, topic, [*readings(40), b"nonsense"], 2)
    seen: list[Any] = []
    frame = _stream(spark, served, topic, dataset="pms")
    _drain(
        frame.selectExpr("pms_id", "pack.volts", "size(cell)", "_reasons is not null"),
        tmp_path / "ck",
        seen,
    )
    rows = [row for _, part in seen for row in part if not row[3]]
    assert len(rows) == 40
    assert {(row[1], row[2]) for row in rows} == {(51.262, 14)}
    assert sum(row[3] for _, part in seen for row in part) == 1


def test_a_schema_reads_its_columns_from_json(spark: Any, served: str, tmp_path: Path) -> None:
    topic = unique("orders")
    given = [b'{"name": "n%d", "amount": %d, "at": "2020-01-02T03:04:05Z"}' % (at, at)
             for at in range(20)]  # fmt: skip
    world.post(served, topic, [*given, b"nonsense"], 2)
    schema = "name string, amount double, at timestamp, _offset bigint, _corrupt_record string"
    options = {"url": served, "topic": topic}
    reading = spark.read.format("penstock").options(**options).schema(schema)
    rows = world.patiently(lambda: reading.load().collect())
    (bad,) = [row for row in rows if row["_corrupt_record"] is not None]
    assert (bad["name"], bad["_corrupt_record"]) == (None, "nonsense")
    good = {row["name"]: row for row in rows if row is not bad}
    assert {name: row["amount"] for name, row in good.items()} == {f"n{n}": n for n in range(20)}
    assert {row["at"].timestamp() for row in good.values()} == {1577934245}

    seen: list[Any] = []
    stream = spark.readStream.format("penstock").schema(StructType().add("amount", "double"))
    stream = stream.options(**options, subscription="s", mode="DROPMALFORMED")
    _drain(world.patiently(stream.load), tmp_path / "ck", seen)
    assert sorted(row[0] for _, part in seen for row in part) == [float(at) for at in range(20)]


@pytest.mark.parametrize(
    ("kind", "options", "said"),
    [
        (DayTimeIntervalType(), {}, "'a' is of type duration"),
        (IntegerType(), {"columns": "body"}, "option columns: a schema is given"),
        (IntegerType(), {"emit": "bodies"}, "leave `schema` out"),
        (IntegerType(), {"dataset": "pms"}, "leave `schema` out"),
        (None, {"mode": "FAILFAST"}, "option mode goes with a schema"),
    ],
)
def test_a_schema_that_does_not_go_is_said_in_our_words(
    kind: DataType | None, options: dict[str, str], said: str
) -> None:
    source = PenstockSource({"url": "penstock://127.0.0.1:9", "topic": "orders"} | options)
    schema = source.schema() if kind is None else StructType().add("a", kind)
    with pytest.raises(InvalidArgument, match=said):
        source.reader(schema)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"subscription": "s", "startingOffsets": "latest"}, "leave startingOffsets out"),
        ({"subscription": "s", "startingOffsets": "1700000000"}, "leave startingOffsets out"),
        ({"startingOffsets": "1700000000"}, "create a subscription of kind reader there"),
    ],
)
def test_a_start_that_a_batch_read_would_ignore_is_refused(
    options: dict[str, str], said: str
) -> None:
    source = PenstockSource({"url": "penstock://127.0.0.1:9", "topic": "orders"} | options)
    with pytest.raises((InvalidArgument, Unsupported), match=said):
        source.reader(source.schema()).partitions()


def test_ranges_alone_are_what_there_is_to_read(spark: Any, served: str) -> None:
    topic = unique("ranges")
    world.post(served, topic, [b"x"] * 7)
    given = {"url": served, "topic": topic, "emit": "ranges"}
    reading = spark.read.format("penstock").options(**given, startingOffsets='{"0": 3}')
    rows = world.patiently(lambda: reading.load().collect())
    assert [tuple(row) for row in rows] == [(0, 3, 7)]


def test_a_batch_read_looks_and_leaves_no_trace(spark: Any, served: str) -> None:
    topic = unique("orders")
    world.post(served, topic, [b"%d" % at for at in range(30)], 2)
    given = {"url": served, "topic": topic}
    reading = spark.read.format("penstock").options(**given, columns="body")
    frame = world.patiently(reading.load)
    assert frame.columns == ["body"]
    assert sorted(int(row.body) for row in world.patiently(frame.collect)) == list(range(30))
    reading = spark.read.format("penstock").options(**given, startingOffsets='{"0": 3}')
    part = world.patiently(reading.load).filter("partition = 0").select("offset")
    rows = world.patiently(part.collect)
    assert min(row.offset for row in rows) == 3

    async def steps() -> list[Any]:
        async with connect(served) as client:
            return await client.subscriptions(topic)

    assert asyncio.run(steps()) == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"emit": "rows"}, "option emit must be one of"),
        ({"columns": "bodie"}, "option columns: there is no 'bodie'"),
        ({"emit": "typed"}, "emit=typed needs the option 'dataset'"),
    ],
)
def test_a_wrong_option_is_said_in_our_words(
    spark: Any, served: str, options: dict[str, str], said: str
) -> None:
    with pytest.raises(PySparkException, match=said):
        _stream(spark, served, "orders", **options)


def test_a_broker_that_is_not_there_is_said_in_our_words(spark: Any) -> None:
    given = {"url": "penstock://127.0.0.1:9", "topic": "orders"}
    reading = spark.read.format("penstock").options(**given)
    with pytest.raises(PySparkException, match=r"127\.0\.0\.1:9"):
        world.patiently(lambda: reading.load().collect())
