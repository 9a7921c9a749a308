"""`penstock tail`: shows new messages of a topic as they come, and takes none of them."""

from argparse import ArgumentParser, Namespace
from typing import Any

from penstock.cli import message, values
from penstock.cli.command import Command
from penstock.cli.connection import opened
from penstock.cli.options import OURS
from penstock.cli.output import Output
from penstock.cli.receiving import receive
from penstock.vocabulary.filters import is_pattern


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("topic", metavar="TOPIC", help="topic to follow")
    parser.add_argument("--count", type=values.positive, metavar="N", help="stop after N messages")
    parser.add_argument(
        "--timeout", type=values.seconds, metavar="S", help="stop after S seconds without one"
    )
    parser.add_argument(
        "--start",
        type=values.start,
        default="latest",
        metavar="WHERE",
        help="earliest, latest (default), a position such as 0:17, a time",
    )


async def run(arguments: Namespace, output: Output) -> int:
    """Follows the topic without a durable subscription: nobody else misses anything."""
    topic = arguments.topic
    async with opened(arguments) as client:
        if client.capabilities.scheme in OURS and not is_pattern(topic):
            await client.describe_topic(topic)  # to subscribe would make it
        async with client.subscribe(topic, None, start=arguments.start) as deliveries:
            output.notice(f"following {topic!r}; Ctrl-C ends")
            await receive(
                deliveries,
                lambda received: _show(output, received),
                lambda received: received.ack(),
                count=arguments.count,
                timeout_s=arguments.timeout,
            )
    return 0


def _show(output: Output, received: Any) -> None:
    if output.is_json:
        output.row(message.to_json(received))
    else:
        print(message.to_line(received), flush=True)


COMMAND = Command(
    "tail",
    "follow the new messages of a topic; nothing is taken or remembered",
    "tail orders\ntail orders --start earliest --timeout 1",
    add,
    run,
    details="The topic must be there. With a file: URL, other programs may publish meanwhile:\n"
    "whoever opens the folder next is connected to this command. --start shows what is there.",
)
