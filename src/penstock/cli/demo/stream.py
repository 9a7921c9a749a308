"""The second half of the story: devices, a gateway, a pipeline into tables, and a kill in it."""

import asyncio
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final

from penstock.cli.demo import asking, fleet, proof
from penstock.cli.demo.chart import chart
from penstock.cli.demo.narrator import Narrator
from penstock.cli.demo.plant import DATASETS, Plant
from penstock.cli.demo.posting import Fleet
from penstock.cli.output import duration, number, plural

ROUNDS: Final = fleet.ROUNDS
PAUSE_S: Final = {"spark": 0.03, "process": 0.005}
"""Between two posts: the day is to last longer than the pipeline needs to start."""
START_S: Final = 600.0
DONE_S: Final = 600.0
SLOWER_AFTER: Final = 400
"""Posts: on a busy machine Spark needs longer, and the kill is to be in the middle of the day."""
OPEN_S: Final = 5.0
"""How long a batch in the middle of its work is waited for before the kill."""
HOW_JAVA: Final = "in this repository scripts/java installs one where it may"


def lane_of(asked: str | None) -> tuple[str, str]:
    """The lane that can run here, and in one line why it is not Spark. Raises when asked for it."""
    if asked == "process":
        return "process", ""
    from penstock.pipeline.spark import session
    from penstock.pipeline.spark.refusals import JavaMissing, SparkMissing

    try:
        session.check_spark()
        session.check_java()
    except JavaMissing as error:
        if asked == "spark":
            raise
        return "process", f"{error.text} ({HOW_JAVA})"
    except SparkMissing as error:
        if asked == "spark":
            raise
        return "process", error.text
    return "spark", ""


def missing_extra() -> str:
    """What a light installation lacks for this half, in one line; empty when nothing."""
    for name in ("deltalake", "duckdb", "pyarrow"):
        try:
            import_module(name)
        except ImportError:
            return f"{name} is not installed: `pip install penstock[spark]` adds the pipeline"
    return ""


def tell(
    narrator: Narrator, folder: Path, *, lane: str | None = None, csv: Path | None = None,
    rounds: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Tells it; what was found, with `is_whole`. Raises ChildFailed and others."""
    if why := missing_extra():
        narrator.step("Devices, a gateway and a pipeline into tables")
        narrator.say(f"Not here: {why}.")
        return {"skipped": why, "is_whole": True}
    sample = proof.csv_post(csv)
    chosen, why = lane_of(lane)
    folder.mkdir(parents=True)
    with _ending_in_order(), Plant(folder, chosen) as plant:
        _tell_start(narrator, plant, why)
        posts = chain([sample], fleet.posts(rounds if rounds is not None else ROUNDS))
        devices = Fleet(plant.gateway_port, posts, PAUSE_S[chosen], SLOWER_AFTER)
        devices.start()
        try:
            before, killed = _tell_kill(narrator, plant, devices, sample.readings)
            recovery = _tell_restart(narrator, plant, devices, is_open=killed)
        finally:
            devices.stop()
        found = asyncio.run(_compared(plant, devices))
    is_whole = _tell_proof(narrator, found)
    hours = _tell_question(narrator, plant.warehouse)
    return {
        "lane": chosen,
        "why_not_spark": why or None,
        "posted": devices.readings,
        "sent_again": devices.repeats,
        "stored_before_the_kill": before,
        "killed_inside_a_batch": killed,
        "recovery": recovery,
        "datasets": [each._asdict() for each in found],
        "hours": hours,
        "is_whole": is_whole,
    }


@contextmanager
def _ending_in_order() -> Iterator[None]:
    """TERM ends this process like Ctrl-C does: the processes it started end before it."""

    def stop(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _tell_start(narrator: Narrator, plant: Plant, why: str) -> None:
    name = "Spark" if plant.lane == "spark" else "this machine's own lane"
    narrator.step(f"Devices post readings; a pipeline on {name} makes tables of them")
    if why:
        narrator.say(f"Spark is left out: {why}")
    plant.start_server()
    plant.start_gateway()
    plant.start_pipeline("asap")
    narrator.aside(f"penstock serve                      {plant.url}")
    narrator.aside(
        f"penstock gateway                    http://127.0.0.1:{plant.gateway_port}"
        "/devices/dataset/{pms,mppt,inverter}"
    )
    narrator.aside(f"penstock pipeline run pipeline.toml delta:{plant.warehouse}")


def _tell_kill(
    narrator: Narrator, plant: Plant, devices: Fleet, first: int
) -> tuple[dict[str, int], bool]:
    """Until something is stored of every kind, and the next batch is in work; then the kill."""
    began = time.monotonic()
    plant.wait_until(lambda: devices.readings >= first, "the CSV file", START_S)
    narrator.say(f"A file of {number(first)} readings of a real battery is posted, and is durable.")
    narrator.say(
        f"{plural(fleet.PMS, 'battery system')}, {fleet.MPPTS} solar chargers and "
        f"{fleet.INVERTERS} inverters send a day of theirs meanwhile."
    )
    plant.wait_until(
        lambda: plant.counted("pms").get("read", 0) >= first and all(_counts(plant).values()),
        "the first batches",
        START_S,
    )
    narrator.say(
        f"After {duration(time.monotonic() - began)} the first rows are in the tables: "
        + ", ".join(f"{name} {number(rows)}" for name, rows in _counts(plant).items())
    )
    narrator.step("In the middle of a batch, server and pipeline are killed")
    is_open = _wait_for_batch(plant, devices)
    plant.kill("server", "pipeline")
    before = _counts(plant)
    where = "with a batch begun and not finished" if is_open else "between two batches"
    narrator.say(f"SIGKILL, {where}; {number(devices.readings)} readings were confirmed by then.")
    if devices.is_alive():
        narrator.say("The devices go on: what is not answered with 200 they send again.")
    return before, is_open


def _wait_for_batch(plant: Plant, devices: Fleet) -> bool:
    ends = time.monotonic() + OPEN_S
    while time.monotonic() < ends and devices.is_alive():
        if plant.has_open_batch():
            return True
        time.sleep(0.001)
    return plant.has_open_batch()


def _tell_restart(
    narrator: Narrator, plant: Plant, devices: Fleet, *, is_open: bool
) -> dict[str, Any]:
    narrator.step("Both are started again")
    recovery: dict[str, Any] = plant.start_server()["recovery"]
    narrator.say(f"The server read {plural(recovery['records'], 'record')} from its log.")
    devices.hurry()
    devices.finish(DONE_S)
    again = (
        f"{plural(devices.repeats, 'post')} sent again"
        if devices.repeats
        else ("the gateway held what was open until the server was back")
    )
    narrator.say(f"The day is over: {number(devices.readings)} readings confirmed; {again}.")
    plant.start_pipeline("available-now")
    told = plant.finish_pipeline(DONE_S)
    done = "the open batches again, the same way, and the rest" if is_open else "the rest"
    narrator.say(
        f"The pipeline did {done}: "
        + ", ".join(f"{each['pipeline']} {number(each['stored'])}" for each in told)
        + " more rows."
    )
    return recovery


def _counts(plant: Plant) -> dict[str, int]:
    return {name: plant.counted(name).get("stored", 0) for name in DATASETS}


async def _compared(plant: Plant, devices: Fleet) -> list[proof.Compared]:
    import penstock

    async with penstock.connect(plant.url) as client:
        aside = await proof.quarantined(client)
    return proof.compare(devices.confirmed.items(), proof.stored(plant.warehouse), aside)


def _tell_proof(narrator: Narrator, found: list[proof.Compared]) -> bool:
    narrator.step("Is every reading in a table or in quarantine, and there once?")
    for each in found:
        narrator.check(
            f"{each.dataset:<8} {number(each.confirmed):>6} confirmed = {number(each.stored):>6} "
            f"stored + {number(each.quarantined):>3} in quarantine; {number(each.missing)} lost, "
            f"{number(each.repeated)} twice",
            is_kept=each.is_whole,
        )
    narrator.aside("A reading that is wrong is kept with its reason, can be mended and replayed.")
    return all(each.is_whole for each in found)


def _tell_question(narrator: Narrator, warehouse: Path) -> list[float]:
    narrator.step("The tables are Delta tables: anybody may ask")
    packs = asking.ask(warehouse, asking.PACKS)
    for line in asking.PACKS.splitlines():
        narrator.aside(line)
    if not narrator.output.is_json:
        narrator.output.table(
            ["   " + packs.columns[0], *packs.columns[1:2], *(f">{n}" for n in packs.columns[2:])],
            [["   " + str(row[0]), row[1], *map(number, row[2:])] for row in packs.rows],
        )
        narrator.output.say()
    hours = asking.ask(warehouse, asking.HOURS)
    for line in asking.HOURS.splitlines():
        narrator.aside(line)
    values = [float(row[2]) for row in hours.rows]
    narrator.say("kWh from the sun, by hour of the day")
    labels = [str(row[0]) if row[0] % 6 == 0 else "" for row in hours.rows]
    for line in chart(values, labels):
        narrator.say(line)
    return [round(value, 3) for value in values]
