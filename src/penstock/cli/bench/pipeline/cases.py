"""The cases that are measured on Spark: each reads a whole topic once and says where it put it."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.cli.bench.pipeline import plain

BATCH: Final = 200_000
WHOLE_STAGE: Final = "spark.sql.codegen.wholeStage"
FILE: Final = """\
[pipeline.pms]
source = "{source}"
dataset = "pms"
subscription = "{subscription}"
repository = "delta:{folder}/warehouse"
checkpoint = "{folder}/checkpoint"
max_rows_per_batch = {rows}
max_bytes_per_batch = 1099511627776
"""


class World(msgspec.Struct):
    """What all cases share."""

    spark: Any
    penstock: str
    """URL of the server."""
    kafka: str
    """Addresses of the Kafka node."""
    topic: str
    messages: int


class Case(msgspec.Struct, frozen=True):
    """One way of reading a topic."""

    name: str
    about: str
    run: Callable[[World, Path], Path | float]
    """Does it in a new folder; returns where the Delta table is, or the seconds that count."""
    beside: str = ""
    """The case it is compared with."""
    target: float | None = None
    """How many times as fast it should be."""


def pipeline_run(source: str, world: World, folder: Path, rows: int) -> Path:
    """`penstock pipeline run` on Spark."""
    from penstock.pipeline.settings import read_file
    from penstock.pipeline.spark import running

    file = folder / "pipeline.toml"
    file.write_text(
        FILE.format(source=source, subscription=folder.name, folder=folder, rows=rows),
        encoding="utf-8",
    )
    found = read_file(str(file))
    running.run(
        list(found.pipelines.values()), {"master": "local[2]"}, threading.Event(),
        started=world.spark,
    )  # fmt: skip
    return folder / "warehouse" / "analytics" / "pms_monitoring"


def ours_whole(world: World, folder: Path) -> Path:
    """The pipeline, all in one batch."""
    return pipeline_run(f"{world.penstock}/{world.topic}", world, folder, world.messages)


def ours_batches(world: World, folder: Path) -> Path:
    """The pipeline, in batches."""
    return pipeline_run(f"{world.penstock}/{world.topic}", world, folder, _batch(world))


def kafka_whole(world: World, folder: Path) -> Path:
    """The same pipeline from a Kafka topic."""
    return pipeline_run(f"kafka://{world.kafka}/{world.topic}", world, folder, world.messages)


def ours_typed(world: World, folder: Path) -> Path:
    """Our source with the columns of a dataset, Spark's own writer."""
    rows = (
        _source(world, folder).option("dataset", "pms").option("maxRowsPerBatch", world.messages)
    ).load()
    columns = [name for name in rows.columns if not name.startswith("_")]
    plain.write(rows.where("_reasons IS NULL").select(*columns), folder)
    return folder / "table"


def ours_source(world: World, folder: Path) -> float:
    """Bodies of our source, to nowhere."""
    rows = (
        _source(world, folder)
        .option("columns", "offset,body")
        .option("maxRowsPerBatch", world.messages)
    )
    return plain.drop(rows.load(), folder)


def plain_whole(world: World, folder: Path) -> Path:
    """The plain way, all in one batch."""
    return _plain(world, folder, None)


def plain_batches(world: World, folder: Path) -> Path:
    """The plain way, in batches."""
    return _plain(world, folder, _batch(world))


def plain_source(world: World, folder: Path) -> float:
    """Bodies of Kafka's connector, to nowhere."""
    rows = plain.messages(world.spark, world.kafka, world.topic, None)
    return plain.drop(rows.select("offset", "value"), folder)


def _plain(world: World, folder: Path, rows_max: int | None) -> Path:
    world.spark.conf.set(WHOLE_STAGE, "false")
    try:
        frame = plain.messages(world.spark, world.kafka, world.topic, rows_max)
        plain.write(plain.table(frame), folder)
    finally:
        world.spark.conf.unset(WHOLE_STAGE)
    return folder / "table"


def _source(world: World, folder: Path) -> Any:
    return (
        world.spark.readStream.format("penstock")
        .option("url", world.penstock)
        .option("topic", world.topic)
        .option("subscription", folder.name)
    )


def _batch(world: World) -> int:
    """Small tries have small batches, five of them."""
    return min(BATCH, max(1, world.messages // 5))


CASES: Final = (
    Case("plain", "plain Spark: Kafka, from_json, Delta writer, one batch", plain_whole),
    Case("plain-batches", "the same in batches of 200,000", plain_batches),
    Case("plain-source", "Kafka's connector to noop", plain_source),
    Case(
        "run", "pipeline run, penstock:// to Delta, one batch", ours_whole, beside="plain", target=3
    ),
    Case(
        "run-batches", "pipeline run, batches of 200,000", ours_batches, beside="plain-batches",
        target=3,
    ),
    Case("run-kafka", "pipeline run, kafka:// to Delta, one batch", kafka_whole, "plain", 2),
    Case("typed", "typed penstock source to Spark's writer", ours_typed, "plain", 1.7),
    Case("source", "penstock source, bodies to noop", ours_source, "plain-source", 1.3),
)  # fmt: skip


def agree(tables: dict[str, Path]) -> dict[str, Any]:
    """What every table says; raises when they do not say the same."""
    import duckdb
    from deltalake import DeltaTable

    found: dict[str, Any] = {}
    with duckdb.connect() as connection:
        for name, path in tables.items():
            connection.register("rows", DeltaTable(str(path)).to_pyarrow_dataset())
            (found[name],) = connection.sql(
                "SELECT count(*), count(DISTINCT (pms_id, pack_id, time_event)),"
                " sum((pack.watts * 10000)::BIGINT), sum(list_sum([c.dvcl FOR c IN cell]))"
                " FROM rows"
            ).fetchall()
    if len({row[:2] for row in found.values()}) > 1:
        raise AssertionError(f"the tables differ: {found}")
    return found
