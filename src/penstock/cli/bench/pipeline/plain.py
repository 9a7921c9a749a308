"""The plain way: Kafka's connector, `from_json`, unrolled expressions, Spark's own Delta writer.

Tuned as well as it could be: whole-stage code generation is off for the long projection (three
times as fast without), cells are unrolled instead of `transform` with a lambda (twice as fast),
`explode` of an array of one keeps the optimiser from parsing the JSON again for every condition
(nearly twice as fast), cells are rounded by `floor` (Spark's `round` goes through decimals: a third
of the projection), Delta's statistics are those of the keys alone, and rows of several days are
written without being sorted first.
It gives the same table as the pipeline, without duplicates, quarantine and events.
"""

from functools import reduce
from operator import and_
from pathlib import Path
from typing import Any, Final

BODY: Final = (
    "pms_id STRING, status STRUCT<code: STRING, temp: DOUBLE>, time_local STRING, "
    "pack STRUCT<id: STRING, dock: INT, amps: DOUBLE, temp: ARRAY<DOUBLE>, "
    "cell: STRUCT<open: ARRAY<INT>, volts: ARRAY<DOUBLE>>, "
    "fet: STRUCT<open: ARRAY<INT>, temp: ARRAY<DOUBLE>>>"
)
CELLS: Final = 14
TIME: Final = "yyyyMMdd'T'HHmmssX"


def messages(spark: Any, bootstrap: str, topic: str, rows_max: int | None) -> Any:
    """The topic, by Kafka's connector."""
    reader = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
    )
    if rows_max is not None:
        reader = reader.option("maxOffsetsPerTrigger", rows_max)
    return reader.load()


def table(frame: Any) -> Any:
    """Messages of Kafka as rows of the table: parsed, validated, computed."""
    from pyspark.sql import functions as f

    body = f.from_json(f.col("value").cast("string"), BODY)
    parsed = frame.select(f.explode(f.array(body)).alias("b"), "timestamp")
    parsed = parsed.select("b.*", "timestamp")
    volts = [f.col("pack.cell.volts")[at] for at in range(CELLS)]
    temps = [f.col("pack.temp")[at] for at in range(3)]
    fets = [f.col("pack.fet.temp")[at] for at in range(2)]
    low, high = f.least(*volts), f.greatest(*volts)
    total = reduce(lambda one, other: one + other, volts)
    moment = f.to_timestamp("time_local", TIME)
    right = [
        f.col("pms_id").isNotNull(), f.col("pack.id").isNotNull(), moment.isNotNull(),
        f.size("pack.cell.volts") == CELLS, low > 0, f.size("pack.temp") == len(temps),
        f.least(*temps) > 0, f.size("pack.fet.temp") == len(fets), f.least(*fets) > 0,
        f.col("status.temp") > 0, f.col("status.code").rlike("^[0-9A-Fa-f]{4}$"),
        f.col("pack.dock").between(1, 48), f.col("pack.amps").isNotNull(),
    ]  # fmt: skip
    pack = f.struct(
        f.round(total, 4).alias("volts"), f.col("pack.amps").alias("amps"),
        f.round(total * f.col("pack.amps"), 4).alias("watts"), low.alias("vcl"),
        high.alias("vch"), f.col("pack.dock").cast("long").alias("dock"),
        temps[0].alias("temp_top"), temps[1].alias("temp_mid"), temps[2].alias("temp_bottom"),
    )  # fmt: skip
    cells = f.array(*[_cell(f, volts[at], low, at) for at in range(CELLS)])
    fet = f.array(
        *[
            f.struct(
                f.array_contains("pack.fet.open", at + 1).alias("open"), fets[at].alias("temp")
            )
            for at in range(len(fets))
        ]
    )
    is_on = (f.conv("status.code", 16, 10).cast("int") % 2) == 1
    return parsed.where(reduce(and_, right)).select(
        "pms_id", f.col("pack.id").alias("pack_id"), pack.alias("pack"), cells.alias("cell"),
        fet.alias("fet"),
        f.struct(is_on.alias("bus_connect"), f.col("status.temp").alias("temp")).alias("status"),
        f.lit(None).cast("string").alias("sender"), moment.alias("time_event"),
        f.lit("+00:00").alias("time_zone"), f.col("timestamp").alias("time_processing"),
        moment.cast("date").alias("day"),
    )  # fmt: skip


def _cell(f: Any, volts: Any, low: Any, at: int) -> Any:
    return f.struct(
        volts.alias("volts"),
        f.floor((volts - low) * 1000 + 0.5).cast("int").alias("dvcl"),
        f.array_contains("pack.cell.open", at + 1).alias("open"),
    )


def write(rows: Any, folder: Path) -> None:
    """Runs until everything there is now is in a Delta table, by Spark's own writer."""
    query = (
        rows.writeStream.format("delta")
        .partitionBy("day")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "table"))
    )
    query.awaitTermination()


def drop(rows: Any, folder: Path) -> float:
    """Runs until everything there is now was read, and writes it nowhere.

    Returns the seconds its batches took: reading so fast, the start of the query would be most of
    the time, and Spark gives every Python source a new process then.
    """
    query = (
        rows.writeStream.format("noop")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    took: int = sum(each.durationMs["triggerExecution"] for each in query.recentProgress)
    return took / 1000
