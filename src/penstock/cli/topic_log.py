"""`penstock topics log`: what waits for each subscriber of a topic, in the order it comes."""

import json
from argparse import ArgumentParser, Namespace

from penstock.cli import values
from penstock.cli.command import Command
from penstock.cli.connection import opened
from penstock.cli.output import Output, number, printable


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("topic", metavar="TOPIC", help="name of the topic")
    parser.add_argument(
        "--count", type=values.positive, default=100, metavar="N",
        help="at most N events of each subscriber (default 100)",
    )  # fmt: skip


async def run(arguments: Namespace, output: Output) -> int:
    """Prints {subscriber: [events in order]}: one document, or an event a line for people."""
    async with opened(arguments) as client:
        found = await client.topic_log(arguments.topic, arguments.count)
        rows = await client.subscriptions(arguments.topic)
    if output.is_json:
        output.document(found)
        return 0
    if not found:
        output.notice(f"topic {arguments.topic!r} has no subscribers")
    waits = {
        row["subscription"]: row["waiting"] + row["leased"] + row["delayed"] for row in rows
    }  # fmt: skip
    for subscriber, events in found.items():
        output.say(f"{subscriber}: {number(waits.get(subscriber, len(events)))}")
        for event in events:
            output.say("  " + printable(json.dumps(event, ensure_ascii=False).encode()))
        left = waits.get(subscriber, 0) - len(events)
        if left > 0:
            output.notice(f"{number(left)} more wait for {subscriber}: see --count")
    return 0


COMMAND = Command(
    "log",
    "what waits for each subscriber, in the order it comes",
    "topics log tweets\ntopics log tweets --json > tweets.json",
    add,
    run,
)
