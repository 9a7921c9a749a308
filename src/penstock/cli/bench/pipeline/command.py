"""`penstock bench pipeline`: every figure of readings into tables, in one run, side by side."""

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from penstock.cli.bench import command, machine, servers
from penstock.cli.bench.figure import Figure
from penstock.cli.bench.pipeline import cases, fresh, readings
from penstock.cli.bench.pipeline.cases import Case, World
from penstock.cli.bench.pipeline.kafka_server import kafka
from penstock.cli.bench.pipeline.memory import Watch
from penstock.cli.bench.places import OurServer
from penstock.cli.output import BOLD, GREEN, RED, Output, number
from penstock.cli.parser import BadUsage, suggestion
from penstock.cli.progress import Progress
from penstock.vocabulary.errors import PenstockError
from penstock.vocabulary.limits import MIB

MESSAGES: Final = 1_000_000
QUICK: Final = 20_000
FRESH_S: Final = 20.0
WARM_PART: Final = 5
"""One in so many messages is read by each case first: nobody pays for the start of Python and Java,
nor for Java's compiler, which takes its time with long projections."""
LANE, FRESH, FRESH_SPARK = "process", "fresh", "fresh-spark"
LANE_TARGET: Final = 120_000
FRESH_TARGET_S: Final = {FRESH: 0.5, FRESH_SPARK: 5.0}
OTHERS: Final = {
    LANE: "in-process lane to Parquet, one core",
    FRESH: "in process: p95 from POST to row",
    FRESH_SPARK: "on Spark: p95 from POST to row",
}
MEMORY_OF: Final = ("run", "run-batches")
SPARK: Final = {
    "master": "local[2]",
    "spark.driver.memory": "1g",
    # For Spark's own writer; see `plain`.
    "spark.sql.maxConcurrentOutputFileWriters": "10",
    "spark.databricks.delta.properties.defaults.dataSkippingStatsColumns":
        "pms_id,pack_id,time_event",
}  # fmt: skip


def run(arguments: Namespace, output: Output) -> int:
    """Measures what was asked for; exit code 1 with --strict when a figure misses its target."""
    chosen = chosen_rows(arguments.rows)
    messages = arguments.messages or (QUICK if arguments.quick else MESSAGES)
    skipped: dict[str, str] = {}
    details: dict[str, Any] = {}
    figures: list[Figure] = []
    with command.scratch(arguments) as folder, Progress(output, "measuring") as progress:
        assert folder is not None
        where = machine.describe(folder)
        on_spark = [case for case in cases.CASES if case.name in chosen]
        if on_spark:
            with _world(folder, messages, on_spark, skipped) as world:
                rates = _measure(world, folder, on_spark, arguments.rounds, skipped, progress)
            figures += judged(on_spark, rates)
            details |= rates
        if LANE in chosen:
            progress.draw()
            found = _lane(folder / LANE, messages)
            details[LANE] = found
            figures += lane_figures(found)
        for name, lane in ((FRESH, "process"), (FRESH_SPARK, "spark")):
            if name in chosen:
                progress.draw()
                seconds = arguments.seconds or (3.0 if arguments.quick else FRESH_S)
                found = fresh.measure(folder / name, lane, seconds)
                details[name] = found
                figures.append(
                    Figure(
                        row=OTHERS[name],
                        value=found["p95"],
                        unit="s",
                        target=FRESH_TARGET_S[name],
                        is_at_most=True,
                    )
                )
    _show(output, where, figures, skipped, details, messages)
    missed = any(each.verdict == "MISS" for each in figures)
    return 1 if arguments.strict and missed else 0


def chosen_rows(text: str | None) -> list[str]:
    """The rows asked for, and those they are compared with. Raises BadUsage."""
    known = [case.name for case in cases.CASES] + list(OTHERS)
    if not text:
        return known
    wanted = [name.strip() for name in text.split(",")]
    for name in wanted:
        if name not in known:
            raise BadUsage(
                f"bench pipeline has no row {name!r}; {suggestion(name, dict.fromkeys(known))}"
            )
    beside = {case.beside for case in cases.CASES if case.name in wanted}
    return [name for name in known if name in wanted or name in beside]


# -- on Spark -----------------------------------------------------------------------------------


@contextmanager
def _world(
    folder: Path, messages: int, wanted: list[Case], skipped: dict[str, str]
) -> Iterator[World]:
    """A server, a Kafka node and a session, both topics full."""
    from penstock.pipeline.spark import session

    session.check_spark()
    session.check_java()
    place = folder / "brokers"
    with (
        servers.running(lambda _port: OurServer(place)) as ours,
        servers.running(kafka(place)) as theirs,
    ):
        url = f"penstock://{ours.address}"
        warm = max(1, messages // WARM_PART)
        asyncio.run(_fill(url, warm, messages))
        readings.fill_kafka(theirs.address, "warm", warm)
        readings.fill_kafka(theirs.address, readings.TOPIC, messages)
        spark = session.start(SPARK, (session.DELTA, session.KAFKA), name="penstock bench")
        try:
            world = World(spark, url, theirs.address, "warm", warm)
            for case in wanted:
                _try(world, folder / f"warm-{case.name}", case, skipped)
            world.topic, world.messages = readings.TOPIC, messages
            yield world
        finally:
            spark.stop()


async def _fill(url: str, warm: int, messages: int) -> None:
    await readings.fill_penstock(url, "warm", warm)
    await readings.fill_penstock(url, readings.TOPIC, messages)


def _try(world: World, folder: Path, case: Case, skipped: dict[str, str]) -> None:
    """A first small run; a case that cannot run here is left out, by its name."""
    folder.mkdir()
    try:
        case.run(world, folder)
    except PenstockError as error:
        skipped[case.name] = f"{error.text} [{error.code}]"
    shutil.rmtree(folder, ignore_errors=True)


def _measure(
    world: World, folder: Path, wanted: list[Case], rounds: int, skipped: dict[str, str],
    progress: Progress,
) -> dict[str, Any]:  # fmt: skip
    """Rows a second of each case, round by round; the order rotates."""
    running = [case for case in wanted if case.name not in skipped]
    rates: dict[str, list[float]] = {case.name: [] for case in running}
    watches = {case.name: Watch() for case in running}
    for turn in range(rounds):
        tables: dict[str, Path] = {}
        at = turn * (len(running) // max(1, rounds)) % max(1, len(running))
        for case in [*running[at:], *running[:at]]:
            progress.draw()
            place = folder / f"{case.name}-{turn}"
            place.mkdir()
            os.sync()  # or this case waits for what the one before it left to be written
            began = time.perf_counter()
            with watches[case.name]:
                found = case.run(world, place)
            took = found if isinstance(found, float) else time.perf_counter() - began
            rates[case.name].append(world.messages / took)
            if isinstance(found, Path):
                tables[case.name] = found
        said = cases.agree(tables)
        if any(row[0] != world.messages for row in said.values()):
            raise PenstockError(f"of {world.messages} messages the tables hold {said}")
        for case in running:
            shutil.rmtree(folder / f"{case.name}-{turn}", ignore_errors=True)
    return {
        name: {
            "rows_per_s": found,
            "driver_bytes_max": watches[name].driver,
            "worker_bytes_max": watches[name].worker,
        }
        for name, found in rates.items()
    }


def judged(wanted: list[Case], rates: dict[str, Any]) -> list[Figure]:
    """Rows a second, and how many times as fast as the case beside it."""
    middle = {name: statistics.median(found["rows_per_s"]) for name, found in rates.items()}
    figures = []
    for case in wanted:
        if case.name not in middle:
            continue
        figures.append(Figure(row=case.about, value=middle[case.name], unit="/s"))
        if case.beside in middle:
            ratio = middle[case.name] / middle[case.beside]
            figures.append(
                Figure(row=f"  beside {case.beside}", value=ratio, unit="×", target=case.target)
            )
        if case.name in MEMORY_OF:
            worker = rates[case.name]["worker_bytes_max"]
            driver = round(rates[case.name]["driver_bytes_max"] / MIB)
            figures.append(
                Figure(row="  a Python worker's memory, at most", value=worker, unit="bytes",
                       note=f"the driver's Java: {number(driver)} MiB, of a heap of 1 GiB")
            )  # fmt: skip
    return figures


# -- in process ---------------------------------------------------------------------------------


def _lane(folder: Path, messages: int) -> dict[str, Any]:
    folder.mkdir()
    done = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", "penstock.cli.bench.pipeline.lane", str(folder), str(messages)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise PenstockError(f"the lane failed: {done.stderr.strip().splitlines()[-1:]}")
    shutil.rmtree(folder, ignore_errors=True)
    found: dict[str, Any] = msgspec.json.decode(done.stdout)
    return found


def lane_figures(found: dict[str, Any]) -> list[Figure]:
    """Rows of the lane: by the processor, because one core is the unit, and by the clock."""
    return [
        Figure(
            row=OTHERS[LANE], value=found["rows_per_cpu_s"], unit="/s", target=LANE_TARGET,
            note=f"{number(round(found['rows_per_s']))} rows/s by the clock",
        ),
        Figure(row="  its memory, at most", value=found["resident_bytes_max"], unit="bytes"),
    ]  # fmt: skip


def _show(
    output: Output, where: dict[str, Any], figures: list[Figure], skipped: dict[str, str],
    details: dict[str, Any], messages: int,
) -> None:  # fmt: skip
    if output.is_json:
        output.document(
            {
                "machine": where,
                "messages": messages,
                "body_bytes": len(readings.body(messages)),
                "figures": [each.to_json() for each in figures],
                "skipped": skipped,
                "details": details,
            }
        )
        return
    output.say(f"{where['cpus']} × {where['cpu']}, {where['kernel']}, {where['python']}")
    output.say(f"{number(messages)} readings of about {len(readings.body(messages))} bytes")
    output.say()
    output.say(output.paint(command.ROW.format("FIGURE", "MEASURED", "TARGET", "", ""), BOLD))
    for each in figures:
        line = command.ROW.format(each.row, each.value_text, each.target_text, each.verdict, "")
        if each.target is not None:
            painted = output.paint(each.verdict, GREEN if each.verdict == "PASS" else RED)
            line = line.replace(f"  {each.verdict}", f"  {painted}", 1)
        output.say(line.rstrip())
        if each.note:
            output.say(f"    {each.note}")
    for name, why in skipped.items():
        output.say(f"{name} is left out: {why}")
