"""`penstock pub`: publishes one message, or a stream of them, and says where they are."""

import json
import sys
import time
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

from penstock.cli import lines, message, values
from penstock.cli.command import Command
from penstock.cli.connection import opened
from penstock.cli.output import Output, plural
from penstock.cli.parser import BadUsage
from penstock.cli.progress import Progress
from penstock.vocabulary.message import Message, Receipt


def add(parser: ArgumentParser) -> None:
    """Adds the arguments of this command."""
    parser.add_argument("topic", metavar="TOPIC", help="topic; it is created when missing")
    parser.add_argument(
        "body",
        metavar="BODY",
        nargs="?",
        help="the body; '-' reads it from standard input; without one, the message is only a key "
        "and headers",
    )
    parser.add_argument("--key", help="messages of one key keep their order")
    parser.add_argument("--id", help="a repeated id is recognised and not stored twice")
    parser.add_argument("--priority", type=int, default=0, metavar="N", help="higher goes first")
    parser.add_argument(
        "--delay", type=values.seconds, metavar="S", help="deliver it after so long: 30, 5m, 2h"
    )
    parser.add_argument(
        "--ttl",
        type=values.seconds,
        metavar="S",
        help="time to live: after so long it is not delivered any more",
    )
    parser.add_argument(
        "--header",
        type=values.header,
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="may be given several times",
    )
    parser.add_argument(
        "--json-body", action="store_true", help="check that the body is JSON before publishing it"
    )
    parser.add_argument("--file", type=Path, metavar="FILE", help="read FILE; - is standard input")
    many = parser.add_mutually_exclusive_group()
    many.add_argument("--lines", action="store_true", help="each line of the input is a body")
    many.add_argument(
        "--ndjson",
        action="store_true",
        help="each line of the input is a JSON object: body or json, key, id, headers, priority, "
        "deliver_at, expires_at",
    )


async def run(arguments: Namespace, output: Output) -> int:
    """Publishes, and returns once everything is durable."""
    if str(arguments.file) == "-" and arguments.body is None:
        arguments.body, arguments.file = "-", None
    _check(arguments)
    async with opened(arguments, creates=True) as client:
        if arguments.lines or arguments.ndjson:
            return await _many(client, arguments, output)
        receipt = await _one(client, arguments)
    if output.is_json:
        output.document(receipt_row(receipt))
    elif not output.is_quiet:
        again = ", duplicate: not stored again" if receipt.duplicate else ""
        output.say(
            f"{receipt.topic} {receipt.position}  id {receipt.id}  {receipt.durability}{again}"
        )
    return 0


def _check(arguments: Namespace) -> None:
    reads = arguments.body == "-" or arguments.file is not None
    if arguments.file is not None and arguments.body not in {None, "-"}:
        raise BadUsage("give a BODY or --file, not both")
    if (arguments.lines or arguments.ndjson) and not reads:
        raise BadUsage("--lines and --ndjson read '-' (standard input) or --file")
    if (arguments.lines or arguments.ndjson) and arguments.id is not None:
        raise BadUsage("--id names one message; with --ndjson each line has its own id")
    if arguments.ndjson and _has_fields(arguments):
        raise BadUsage("with --ndjson each line has its own key, headers, priority and times")
    if not reads and arguments.body is None and arguments.key is None and not arguments.header:
        raise BadUsage("give a BODY, '-' for standard input, or --key for a message without a body")


def _has_fields(arguments: Namespace) -> bool:
    """True when an option says something about a message besides its body and id."""
    is_given = [arguments.key, arguments.delay, arguments.ttl] != [None, None, None]
    return is_given or bool(arguments.header or arguments.priority)


async def _one(client: Any, arguments: Namespace) -> Receipt:
    body: Any = arguments.body
    if arguments.body == "-" or arguments.file is not None:
        body = lines.read_all(arguments.file)
    elif body is not None:
        body = body.encode(errors="surrogateescape")
    headers = dict(arguments.header)
    if arguments.json_body:
        _check_json(body or b"", "BODY")
        headers.setdefault("content-type", "application/json")
    receipt: Receipt = await client.publish(
        arguments.topic,
        body,
        key=arguments.key,
        id=arguments.id,
        headers=headers or None,
        priority=arguments.priority,
        delay_s=arguments.delay,
        ttl_s=arguments.ttl,
    )
    return receipt


def _check_json(body: bytes, where: str) -> None:
    try:
        json.loads(body)
    except ValueError as error:
        raise BadUsage(f"{where} is not JSON: {error}") from error


async def _many(client: Any, arguments: Namespace, output: Output) -> int:
    count = duplicates = 0
    first: Receipt | None = None
    last: Receipt | None = None
    number = 0
    with Progress(output, f"publishing to {arguments.topic}") as progress:
        async for block in lines.batches(arguments.file):
            batch = _messages(arguments, block, number)
            number += len(block)
            if not batch:
                continue
            receipts = await client.publish_many(arguments.topic, batch)
            count += len(batch)
            duplicates += len(receipts.duplicates)
            first, last = first or receipts[0], receipts[-1]
            progress.add(len(batch))
    _report(output, arguments.topic, count, duplicates, first, last)
    return 0


def _messages(arguments: Namespace, block: list[bytes], number: int) -> list[Message]:
    """Messages of a block whose first line has `number` lines before it; empty lines are none."""
    named = [(f"line {number + i}", line) for i, line in enumerate(block, start=1) if line.strip()]
    if arguments.ndjson:
        return [message.from_json(line, where) for where, line in named]
    headers = dict(arguments.header)
    if arguments.json_body:
        for where, line in named:
            _check_json(line, where)
        headers.setdefault("content-type", "application/json")
    shared = {
        "key": arguments.key,
        "headers": headers or None,
        "priority": arguments.priority,
        "deliver_at": _after(arguments.delay),
        "expires_at": _after(arguments.ttl),
    }
    return [Message(body=line, **shared) for _, line in named]


def _after(seconds: float | None) -> float | None:
    """Unix seconds so long from now."""
    return None if seconds is None else time.time() + seconds


def _report(
    output: Output, topic: str, count: int, duplicates: int, first: Receipt | None,
    last: Receipt | None,
) -> None:  # fmt: skip
    if output.is_json:
        output.document(
            {
                "topic": topic,
                "published": count,
                "duplicates": duplicates,
                "first": first and first.position,
                "last": last and last.position,
                "durability": last and last.durability,
            }
        )
    elif not output.is_quiet:
        again = f", {duplicates:,} of them duplicates" if duplicates else ""
        span = f"  {first.position} … {last.position}  {last.durability}" if first and last else ""
        output.say(f"{plural(count, 'message')} confirmed{again}{span}")
        sys.stdout.flush()


def receipt_row(receipt: Receipt) -> dict[str, Any]:
    """A receipt for machines."""
    return {
        "topic": receipt.topic,
        "partition": receipt.partition,
        "offset": receipt.offset,
        "position": receipt.position,
        "id": receipt.id,
        "durability": receipt.durability,
        "duplicate": receipt.duplicate,
    }


COMMAND = Command(
    "pub",
    "publish a message, or one for each line of the input",
    "pub orders '{\"id\": 1}' --key customer-7 --header source=shop\n"
    "pub orders '{\"id\": 2}' --id order-2            # a repeated id is not stored again\n"
    "pub alarms 'fire in hall 3' --priority 9\n"
    "pub mails 'remember the milk' --delay 30m --ttl 2h\n"
    "pub logs - --lines < app.log\n"
    "pub copy --file messages.ndjson --ndjson",
    add,
    run,
)
