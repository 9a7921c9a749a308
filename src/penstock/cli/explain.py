"""`penstock explain`: why a message, a subscription or a consumer does not move."""

from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from typing import Any

from penstock.cli.command import Command
from penstock.cli.connection import opened
from penstock.cli.output import YELLOW, Output, moment, number

_TABLES = {
    "subscriptions": ("subscription", "position", "reason", "text"),
    "partitions": ("position", "reason", "text"),
    "consumers": ("consumer", "state", "outstanding", "credit"),
}
"""Lists of an answer, and their columns."""


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("topic", metavar="TOPIC", help="topic it is about")
    parser.add_argument("--subscription", metavar="NAME", help="only this one (default: every one)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--position", metavar="P:N", help="the message at this position, as 0:17")
    which.add_argument("--id", help="the message with this id; reads all held messages")
    which.add_argument("--key", help="the oldest unfinished message with this key; reads them too")
    parser.add_argument("--consumer", metavar="NAME", help="why this consumer gets nothing")


async def run(arguments: Namespace, output: Output) -> int:
    """Prints the reason, what to do next, and the details."""
    async with opened(arguments) as client:
        found = await client.explain(
            arguments.topic, subscription=arguments.subscription, position=arguments.position,
            id=arguments.id, key=arguments.key, consumer=arguments.consumer,
        )  # fmt: skip
    if output.is_json:
        output.document(found)
    else:
        show(output, found)
    return 0


def show(output: Output, found: Mapping[str, Any]) -> None:
    """One answer for people."""
    for answer in (found, found.get("asked")):
        if answer is not None:
            output.say(f"{output.paint(answer['reason'], YELLOW)}: {answer['text']}")
    output.say()
    output.pairs(
        {
            name.replace("_", " "): moment(value) if name == "until" else _plain(value)
            for name, value in found.items()
            if name not in {"reason", "text", *_TABLES} and not isinstance(value, dict)
        }
    )
    for name, columns in _TABLES.items():
        rows = found.get(name)
        if rows:
            output.say()
            output.table(
                [column.upper() for column in columns],
                [[_plain(row.get(column)) for column in columns] for row in rows],
            )


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return number(value)
    return "" if value is None else str(value)


COMMAND = Command(
    "explain",
    "why something does not move, and what to do about it",
    "explain orders\nexplain orders --subscription billing --id order-17\n"
    "explain orders --position 0:17 --json",
    add,
    run,
)
