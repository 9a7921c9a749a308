"""`penstock demo`: tells the story to a newcomer; exit code 1 when a promise was broken."""

import asyncio
import shutil
import tempfile
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any, Final

from penstock.cli.command import Command
from penstock.cli.demo.narrator import Narrator
from penstock.cli.output import Output, number, plural

SHOWN: Final = 3
"""Confirmations printed one by one before the rest are only counted."""

PARTS: Final = ("messaging", "pipeline")
MEANING: Final = {
    "confirmed": "is on disk",
    "acked": "was billed, and that is on disk",
    "shipped": "left the orders and became a parcel, as one transaction",
}


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("--keep", action="store_true", help="leave the folder there to look at")
    parser.add_argument(
        "--part", choices=PARTS, help="only this half of it: messaging is over in seconds"
    )
    parser.add_argument(
        "--lane",
        choices=("spark", "process"),
        help="what the pipeline runs on (default: Spark, where Java is there)",
    )
    parser.add_argument(
        "--csv",
        metavar="FILE",
        type=Path,
        help="readings of battery packs to post (default: two real days that come with Penstock)",
    )


def run(arguments: Namespace, output: Output) -> int:
    """Runs the demonstration in a folder of its own."""
    began = time.monotonic()
    parent = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    narrator = Narrator(output)
    told: dict[str, Any] = {"is_whole": True}
    try:
        if arguments.part != "pipeline":
            told |= _tell(narrator, parent / "data")
        if arguments.part != "messaging":
            from penstock.cli.demo import stream

            found = stream.tell(narrator, parent / "plant", lane=arguments.lane, csv=arguments.csv)
            told |= {"pipeline": found, "is_whole": told["is_whole"] and found["is_whole"]}
    finally:
        if not arguments.keep:
            shutil.rmtree(parent, ignore_errors=True)
    told["seconds"] = round(time.monotonic() - began, 2)
    if output.is_json:
        output.document(told | ({"folder": str(parent / "data")} if arguments.keep else {}))
    else:
        _next_steps(output, parent if arguments.keep else None)
    return 0 if told["is_whole"] else 1


def _tell(narrator: Narrator, folder: Path) -> dict[str, Any]:
    from penstock.cli.demo import crash

    narrator.step("A program publishes orders; other parts of it bill them and ship them")
    narrator.aside(f"store: {folder}")
    promises = crash.work_and_kill(folder, _ticker(narrator))
    confirmed, acked = len(promises.confirmed), len(promises.acked)
    narrator.say(
        f"… {number(confirmed)} orders confirmed, {number(acked)} billed and acknowledged, "
        f"{number(len(promises.shipped))} shipped"
    )
    narrator.step("In the middle of its work the program is killed")
    narrator.say("SIGKILL: no clean-up, no goodbye, a write perhaps half done.")
    narrator.step("Another process opens the same folder")
    found, shipped, dead_is_right = asyncio.run(_tell_after(narrator, folder, promises))
    verdict = _verify(narrator, folder)
    return {
        "confirmed": confirmed,
        "acked": acked,
        "stored": found.stored,
        "lost": len(found.lost) + len(found.missing),
        "acked_and_returned": len(found.returned),
        "recovery": found.recovery,
        "parcels": shipped.after,
        "shipped_twice": len(shipped.twice),
        "not_shipped": len(shipped.lost) + len(shipped.missing),
        "dead_letter_redriven": dead_is_right,
        "verify": verdict,
        "is_whole": found.is_whole and shipped.is_whole and dead_is_right and verdict == "ok",
    }


async def _tell_after(narrator: Narrator, folder: Path, promises: Any) -> tuple[Any, Any, bool]:
    import penstock
    from penstock.cli.demo import crash

    async with penstock.connect(f"file:{folder}") as client:
        found = await crash.compare(client, promises)
        _tell_found(narrator, found, promises)
        shipped = await _tell_shipped(narrator, client, promises)
        dead_is_right = await _tell_dead(narrator, client)
        _tell_end(narrator, await client.stats())
    return found, shipped, dead_is_right


def _ticker(narrator: Narrator) -> Any:
    def tell(what: str, name: str, count: int) -> None:
        if count <= SHOWN and what in MEANING:
            narrator.aside(f"{name} {MEANING[what]}")

    return tell


def _tell_found(narrator: Narrator, found: Any, promises: Any) -> None:
    report = found.recovery
    narrator.say(
        f"Recovery read {plural(report['records'], 'record')} from the log"
        + (f" and set {report['torn_bytes']} torn bytes aside." if report["torn_bytes"] else ".")
    )
    narrator.step("Was every promise kept?")
    confirmed, acked = len(promises.confirmed), len(promises.acked)
    narrator.check(
        f"{number(confirmed - len(found.lost))} of {number(confirmed)} confirmed orders are there",
        is_kept=not found.lost,
    )
    narrator.check(
        f"{number(acked - len(found.returned))} of {number(acked)} confirmed acknowledgements hold",
        is_kept=not found.returned,
    )
    narrator.check(
        f"the {plural(found.unfinished, 'order')} not yet billed came again, and are billed now",
        is_kept=not found.missing,
    )
    extra = found.stored + len(found.lost) - confirmed
    if extra > 0:
        narrator.aside(f"({plural(extra, 'order')} more had reached the disk, not yet confirmed)")


async def _tell_shipped(narrator: Narrator, client: Any, promises: Any) -> Any:
    from penstock.cli.demo import child, crash, parcels

    narrator.step("Was anything shipped twice, or not at all?")
    narrator.say("Taking an order and publishing its parcel is one transaction: both or neither.")
    found = await parcels.ship_the_rest(
        client, child.TOPIC, promises.confirmed, promises.shipped, crash.QUIET_S
    )
    confirmed = len(promises.shipped)
    narrator.check(
        f"{number(confirmed - len(found.lost))} of {number(confirmed)} confirmed transactions hold",
        is_kept=not found.lost,
    )
    narrator.check(
        f"the rest is shipped now: {plural(found.after, 'parcel')}, each order exactly once",
        is_kept=found.is_whole,
    )
    return found


async def _tell_dead(narrator: Narrator, client: Any) -> bool:
    from penstock.cli.demo import failing

    narrator.step("A message that nobody can handle")
    attempts, letters = await failing.fail(client)
    narrator.say(f"The handler failed {plural(attempts, 'time')}: {failing.REASON}.")
    narrator.say(
        f"It was set aside as a dead letter ({len(letters)}), with its story in its headers."
    )
    count, message = await failing.redrive(client)
    narrator.say(f"The fault is mended; {plural(count, 'dead letter')} sent back with `redrive`.")
    is_right = len(letters) == 1 and count == 1 and message is not None
    narrator.check("the handler received it again and finished it", is_kept=is_right)
    return is_right


def _tell_end(narrator: Narrator, stats: dict[str, Any]) -> None:
    narrator.step("The store in numbers")
    narrator.say(
        f"{plural(stats['topics'], 'topic')}, {plural(stats['subscriptions'], 'subscription')}, "
        f"{plural(stats['messages_held'], 'message')} held, {plural(stats['records'], 'record')} "
        f"written, health {stats['health']['status']}"
    )


def _verify(narrator: Narrator, folder: Path) -> str:
    from penstock.journal.disk import FolderDisk
    from penstock.journal.verify import verify

    disk = FolderDisk(folder, is_read_only=True)
    try:
        report = verify(disk)
    finally:
        disk.close()
    is_right = report.verdict.value == "ok"
    narrator.check(f"`penstock verify` finds the store {report.verdict.value}", is_kept=is_right)
    return str(report.verdict.value)


def _next_steps(output: Output, kept: Path | None) -> None:
    output.say()
    output.heading("What to try next")
    if kept and (kept / "data").exists():
        output.say(f"  penstock stats --url file:{kept / 'data'}")
        output.say(f"  penstock topics list --url file:{kept / 'data'}")
    if kept and (kept / "plant").exists():
        output.say(f"  penstock pipeline check {kept / 'plant' / 'pipeline.toml'}")
    output.say(
        "  penstock pub orders '{\"id\": 1}'            # a store of your own, in ./penstock-data"
    )
    output.say("  penstock sub orders --subscription billing --count 1")
    output.say("  penstock bench --suite --quick             # how fast is this machine?")
    if not kept:
        output.say("  penstock demo --keep                       # leaves the folder to look at")


COMMAND = Command(
    "demo",
    "watch a crash, and see that nothing that was confirmed is lost",
    "demo\ndemo --keep\ndemo --part messaging\ndemo --part pipeline --lane process",
    add,
    run,
    details="First a program and its store, in seconds; then a server, a gateway, devices and a\n"
    "pipeline into tables, on Spark where Java is there: about a minute. Ends with exit code 1\n"
    "if a promise was broken.",
)
