"""`penstock stats`: the broker, or one topic, in numbers."""

from argparse import ArgumentParser, Namespace
from typing import Any

from penstock.cli.command import Command
from penstock.cli.connection import opened
from penstock.cli.output import GREEN, RED, YELLOW, Output, number, size
from penstock.cli.topics import run_describe, show_subscriptions


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("--topic", metavar="TOPIC", help="only this topic and its subscriptions")
    parser.add_argument(
        "--confirm-time",
        action="store_true",
        help="the broker's clock is right although it jumped: expiry and retention go on",
    )


async def run(arguments: Namespace, output: Output) -> int:
    """Prints the numbers; exit code 1 when the broker's health has failed."""
    if arguments.topic is not None:
        return await run_describe(arguments, output)
    async with opened(arguments) as client:
        if arguments.confirm_time:
            await client.confirm_time()
        found = await client.stats()
        subscriptions = await client.subscriptions()
    if output.is_json:
        output.document({**found, "subscription_rows": subscriptions})
    else:
        show(output, found)
        if subscriptions:
            output.say()
            show_subscriptions(output, subscriptions)
    return 1 if found["health"]["status"] == "failed" else 0


def show(output: Output, found: dict[str, Any]) -> None:
    """The broker in numbers, for people."""
    health = found["health"]
    colour = {"ok": GREEN, "degraded": YELLOW}.get(health["status"], RED)
    output.pairs(
        {
            "health": output.paint(health["status"], colour),
            "topics": number(found["topics"]),
            "subscriptions": number(found["subscriptions"]),
            "consumers": number(found["consumers"]),
            "messages held": number(found["messages_held"]),
            **(_store(found) if "disk_bytes" in found else {}),
        }
    )
    for reason in health["reasons"]:
        output.say(f"  {reason}")


def _store(found: dict[str, Any]) -> dict[str, str]:
    """What only our own broker tells."""
    return {
        "disk": f"{size(found['disk_bytes'])} in {found['segments']} segments and "
        f"{found['spare_segments']} spare, {size(found['live_bytes'])} of it in use",
        "snapshots": number(found["snapshots"]),
        "records written": number(found["records"]),
        "recovery": "nothing, the store was new"
        if found.get("generation") == 1
        else recovery_line(found["recovery"]),
    }


def recovery_line(report: dict[str, Any]) -> str:
    """How the store was found when it was opened."""
    if report["is_clean"]:
        return "the last stop was clean"
    torn = f", {number(report['torn_bytes'])} unconfirmed bytes set aside" * bool(
        report["torn_bytes"]
    )
    lost = f", {len(report['damages'])} damaged places" if report["damages"] else ""
    return (
        f"the last stop was not clean: {number(report['records'])} records "
        f"({size(report['log_bytes'])}) read again{torn}{lost}"
    )


COMMAND = Command(
    "stats",
    "the broker in numbers",
    "stats\nstats --topic orders --json\nstats --confirm-time",
    add,
    run,
)
