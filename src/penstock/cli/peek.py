"""`penstock peek`: shows the messages a topic holds. Nothing is leased, counted or removed."""

from argparse import ArgumentParser, Namespace

from penstock.cli import message, values
from penstock.cli.command import Command
from penstock.cli.connection import opened
from penstock.cli.looking import held
from penstock.cli.output import Output


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("topic", metavar="TOPIC", help="topic to look at")
    parser.add_argument(
        "--count", type=values.positive, default=10, metavar="N", help="at most N (default 10)"
    )


async def run(arguments: Namespace, output: Output) -> int:
    """Prints the oldest held messages."""
    async with opened(arguments) as client:
        shown = 0
        async for each in held(client, arguments.topic):
            if output.is_json:
                output.row(message.to_json(each))
            else:
                output.say(message.to_line(each))
            shown += 1
            if shown >= arguments.count:
                break
    if not shown:
        output.notice(f"topic {arguments.topic!r} holds no messages")
    return 0


COMMAND = Command(
    "peek",
    "show held messages without taking them",
    "peek orders --count 5\npeek orders --count 1000 --json > orders.ndjson",
    add,
    run,
)
