"""`penstock sub`: receives messages, prints their bodies, and acknowledges what it printed."""

from argparse import ArgumentParser, Namespace
from typing import Any

from penstock.cli import message, values
from penstock.cli.command import Command
from penstock.cli.connection import opened
from penstock.cli.output import Output, duration, plural
from penstock.cli.receiving import receive
from penstock.vocabulary.limits import CREDIT_DEFAULT, CREDIT_MAX
from penstock.vocabulary.message import Kind


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument(
        "topic",
        metavar="TOPIC",
        help="topic, created when missing; or a pattern: + or * is any one level, # or > the rest",
    )
    parser.add_argument(
        "--subscription",
        metavar="NAME",
        help="a durable name: goes on where it was. Without one, only new messages are shown and "
        "nothing is remembered",
    )
    parser.add_argument(
        "--kind", choices=[str(kind) for kind in Kind], default=None, help="default: shared"
    )
    parser.add_argument(
        "--consumer",
        metavar="NAME",
        help="with --kind multicast: a durable name of its own, which gets every message",
    )
    parser.add_argument(
        "--qos",
        type=int,
        choices=(0, 1, 2),
        default=None,
        help="0: at most once, 1: at least once, 2: stale acks are refused (default: 1)",
    )
    parser.add_argument("--count", type=values.positive, metavar="N", help="stop after N messages")
    parser.add_argument(
        "--timeout", type=values.seconds, metavar="S", help="stop after S seconds without one"
    )
    parser.add_argument(
        "--start",
        type=values.start,
        metavar="WHERE",
        help="where a new subscription starts: earliest, latest, a position such as 0:17, a time",
    )
    parser.add_argument(
        "--no-ack", action="store_true", help="print only: the messages will be delivered again"
    )


async def run(arguments: Namespace, output: Output) -> int:
    """Prints each message, then acknowledges it; leaves when the acks are durable."""
    settings: dict[str, Any] = {"credit": _credit(arguments)}
    if arguments.start is not None:
        settings["start"] = arguments.start
    if arguments.kind is not None:
        settings["kind"] = arguments.kind
    if arguments.consumer is not None:
        settings["consumer"] = arguments.consumer
    if arguments.qos is not None:
        settings["qos"] = arguments.qos
    async with (
        opened(arguments, creates=True) as client,
        client.subscribe(arguments.topic, arguments.subscription, **settings) as deliveries,
    ):
        output.notice(_opening(arguments))
        shown = await receive(
            deliveries,
            lambda received: show(output, received),
            _leave if arguments.no_ack else _ack,
            count=arguments.count,
            timeout_s=arguments.timeout,
        )
    if arguments.count is not None and shown < arguments.count:
        text = f"{plural(shown, 'message')} of {arguments.count:,} came"
        output.error("timeout", f"{text} before {duration(arguments.timeout)} without one")
        return 1
    return 0


def _credit(arguments: Namespace) -> int:
    """As many messages in hand as this command can use; others stay free for other consumers."""
    usual = CREDIT_MAX if arguments.no_ack else CREDIT_DEFAULT
    return usual if arguments.count is None else min(usual, arguments.count)


def _opening(arguments: Namespace) -> str:
    name = arguments.subscription
    reader = f"as subscription {name!r}" if name else "without a name: new messages only"
    return f"listening to {arguments.topic!r} {reader}; Ctrl-C ends"


def show(output: Output, received: Any) -> None:
    """Prints one message and makes sure that it is out."""
    if output.is_json:
        output.row(message.to_json(received))
    else:
        output.body(received.body or b"")


def _ack(received: Any) -> None:
    received.ack()


def _leave(_received: Any) -> None:
    """--no-ack: the message stays unfinished."""


COMMAND = Command(
    "sub",
    "receive messages, print their bodies, acknowledge them",
    "sub orders --subscription billing\n"
    "sub orders --subscription billing --timeout 1 --json\n"
    "sub orders --subscription audit --start earliest --count 10\n"
    "sub 'sensors/+/temp' --subscription climate\n"
    "sub news --subscription screens --kind multicast --consumer hall",
    add,
    run,
)
